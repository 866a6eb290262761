// The vector kernels on every instruction set that this machine has, against scalar loops in
// float64.
#include "kernels/cpu/base/scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "hwy/targets.h"
#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/layer_norm.h"
#include "kernels/cpu/base/row_layout.h"

namespace sru::kernels::cpu {
namespace {

// One step's rounding is about 1e-7; states stay below 3.
constexpr double kTolerance = 3e-6;

class VectorTargetTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// One direction over one sequence; every buffer is followed by poison.
struct ScanCase {
  ScanCase(int hidden, int steps, Highway highway, Activation activation, float spread)
      : hidden(hidden),
        padded(RowLayout::RoundUp(hidden)),
        steps(steps),
        matrices(highway == Highway::kMatrix ? 4 : 3),
        u(static_cast<size_t>(steps) * matrices * padded + kRowAlignment),
        x(static_cast<size_t>(steps) * padded + kRowAlignment),
        constants(static_cast<size_t>(4) * padded),
        c(padded),
        h(static_cast<size_t>(steps) * padded + kRowAlignment),
        pool(padded) {
    std::mt19937 random(hidden * 1000 + steps);
    std::normal_distribution<float> normal(0.0f, spread);
    for (int t = 0; t < steps; ++t) {
      for (int j = 0; j < hidden; ++j) {
        for (int gate = 0; gate < matrices; ++gate) U(t, gate)[j] = normal(random);
        x.data()[t * padded + j] = normal(random);
      }
    }
    for (int j = 0; j < hidden; ++j) {
      for (int i = 0; i < 4; ++i) Constant(i)[j] = 0.5f * normal(random);
      c.data()[j] = normal(random);
    }
    const float poison = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(u.data() + u.size() - kRowAlignment, kRowAlignment, poison);
    std::fill_n(x.data() + x.size() - kRowAlignment, kRowAlignment, poison);
    std::fill_n(h.data() + h.size() - kRowAlignment, kRowAlignment, -7.0f);
    parameters = {padded,      highway,     activation,  1.5f,
                  Constant(0), Constant(1), Constant(2), Constant(3)};
  }

  float* U(int t, int gate) {
    return u.data() + (static_cast<size_t>(t) * matrices + gate) * padded;
  }
  float* Constant(int i) { return constants.data() + static_cast<size_t>(i) * padded; }

  // Scalar code, with the argument of the gates as scan.h defines it.
  void Expect(bool backward, Pooling pooling) {
    std::vector<double> state(hidden), sum(hidden), maximum(hidden, -1e300), last(hidden),
        first_h(hidden);
    std::vector<double> expected_h(static_cast<size_t>(steps) * hidden);
    for (int j = 0; j < hidden; ++j) {
      state[j] = c.data()[j];
      for (int s = 0; s < steps; ++s) {
        const int t = backward ? steps - 1 - s : s;
        const auto gate = [&](int plane, const float* v, const float* b) {
          return Sigmoid((U(t, plane)[j] + v[j] * state[j] + b[j]) / kExp2GateScale);
        };
        const double f = gate(1, parameters.v_f, parameters.b_f);
        const double r = gate(2, parameters.v_r, parameters.b_r);
        state[j] = f * state[j] + (1 - f) * U(t, 0)[j];
        double g = std::numeric_limits<double>::quiet_NaN();
        switch (parameters.activation) {
          case Activation::kIdentity:
            g = state[j];
            break;
          case Activation::kTanh:
            g = std::tanh(state[j]);
            break;
        }
        double skip = 0;
        if (parameters.highway == Highway::kInput) skip = 1.5 * x.data()[t * padded + j];
        if (parameters.highway == Highway::kMatrix) skip = U(t, 3)[j];
        const double h_t = r * g + (1 - r) * skip;
        expected_h[static_cast<size_t>(t) * hidden + j] = h_t;
        sum[j] += h_t;
        maximum[j] = std::max(maximum[j], h_t);
        last[j] = h_t;
        if (s == 0) first_h[j] = h_t;
      }
    }

    const int first = backward ? steps - 1 : 0;
    const ptrdiff_t sign = backward ? -1 : 1;
    ScanSteps s;
    s.steps = steps;
    s.u = U(first, 0);
    s.u_stride = sign * matrices * padded;
    s.x = x.data() + static_cast<size_t>(first) * padded;
    s.x_stride = sign * padded;
    s.c = c.data();
    s.h = h.data() + static_cast<size_t>(first) * padded;
    s.h_stride = sign * padded;
    s.pooling = RuleOf(pooling).step;
    if (pooling != Pooling::kNone) s.pool = pool.data();
    if (pooling == Pooling::kMax) {
      std::fill_n(pool.data(), padded, -std::numeric_limits<float>::infinity());
    }
    // In two calls where there are two steps, as a batch that is cut into chunks.
    s.starts = true;
    s.steps = (steps + 1) / 2;
    Scan(parameters, s);
    s.starts = false;
    s.u += s.steps * s.u_stride;
    s.x += s.steps * s.x_stride;
    s.h += s.steps * s.h_stride;
    s.steps = steps - s.steps;
    Scan(parameters, s);

    for (int j = 0; j < hidden; ++j) {
      ASSERT_NEAR(state[j], c.data()[j], kTolerance) << "c " << j;
      for (int t = 0; t < steps; ++t) {
        ASSERT_NEAR(expected_h[static_cast<size_t>(t) * hidden + j], h.data()[t * padded + j],
                    kTolerance)
            << "h " << t << " " << j;
      }
      if (pooling == Pooling::kMax) {
        ASSERT_NEAR(maximum[j], pool.data()[j], kTolerance);
      }
      if (pooling == Pooling::kMean) {
        ASSERT_NEAR(sum[j], pool.data()[j], kTolerance * steps);
      }
      if (pooling == Pooling::kFirst) {
        ASSERT_NEAR(first_h[j], pool.data()[j], kTolerance);
      }
      if (pooling == Pooling::kLast) {
        ASSERT_NEAR(last[j], pool.data()[j], kTolerance);
      }
    }
    for (int j = hidden; j < padded; ++j) ASSERT_EQ(h.data()[j], 0.0f) << "padding";
    for (size_t i = h.size() - kRowAlignment; i < h.size(); ++i) {
      ASSERT_EQ(h.data()[i], -7.0f) << "written past the end";
    }
  }

  int hidden, padded, steps, matrices;
  AlignedBuffer u, x, constants, c, h, pool;
  ScanParameters parameters;
};

TEST_P(VectorTargetTest, ScanEqualsScalar) {
  for (int hidden : {1, 15, 16, 17, 31, 48, 64, 80, 113}) {
    for (int steps : {1, 2, 19}) {
      for (Highway highway : {Highway::kNone, Highway::kInput, Highway::kMatrix}) {
        for (Activation activation : kAllActivations) {
          for (Pooling pooling : kAllPoolings) {
            for (bool backward : {false, true}) {
              ScanCase test(hidden, steps, highway, activation, 0.5f);
              ASSERT_NO_FATAL_FAILURE(test.Expect(backward, pooling))
                  << "hidden " << hidden << " steps " << steps << " backward " << backward;
            }
          }
        }
      }
    }
  }
}

TEST_P(VectorTargetTest, GatesSaturateWithoutNan) {
  ScanCase test(16, 3, Highway::kInput, Activation::kTanh, 1.0f);
  const float extremes[] = {1e30f, -1e30f, 3e38f, -3e38f, 1e-40f, -1e-40f, 100.0f, -100.0f};
  for (int t = 0; t < 3; ++t) {
    for (int j = 0; j < 16; ++j) {
      test.U(t, 0)[j] = 0.25f;
      test.U(t, 1)[j] = extremes[(t + j) % 8];
      test.U(t, 2)[j] = extremes[(t * 3 + j) % 8];
    }
  }
  test.Expect(false, Pooling::kNone);
}

TEST_P(VectorTargetTest, LayerNormEqualsScalar) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0.3f, 2.0f);
  for (int segments : {1, 2}) {
    for (int size : {1, 7, 16, 33}) {
      const RowLayout layout{segments, size};
      const int rows = 3;
      AlignedBuffer x(rows * layout.stride()), y(rows * layout.stride());
      AlignedBuffer weight(layout.stride()), bias(layout.stride());
      std::vector<float> values(layout.width());
      const auto fill = [&](float* to) {
        for (float& value : values) value = normal(random);
        layout.Pack(values.data(), to);
      };
      fill(weight.data());
      fill(bias.data());
      for (int t = 0; t < rows; ++t) fill(x.data() + t * layout.stride());
      NormalizeRows(layout, weight.data(), bias.data(), x.data(), rows, y.data());
      for (int t = 0; t < rows; ++t) {
        const float* row = x.data() + t * layout.stride();
        double mean = 0, variance = 0;
        for (int i = 0; i < layout.width(); ++i) mean += row[layout.Position(i)];
        mean /= layout.width();
        for (int i = 0; i < layout.width(); ++i) {
          variance += std::pow(row[layout.Position(i)] - mean, 2);
        }
        variance /= layout.width();
        for (int i = 0; i < layout.width(); ++i) {
          const int at = layout.Position(i);
          const double expected =
              (row[at] - mean) / std::sqrt(variance + kLayerNormEpsilon) * weight.data()[at] +
              bias.data()[at];
          ASSERT_NEAR(expected, y.data()[t * layout.stride() + at], 1e-5) << size << " " << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, VectorTargetTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& info) { return std::string(hwy::TargetName(info.param)); });

}  // namespace
}  // namespace sru::kernels::cpu
