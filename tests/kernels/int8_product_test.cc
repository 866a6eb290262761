// Products by int8 weights: the same bits from every kernel that this machine can run, for any
// number of rows, and an error against float64 that follows from the rounding of x and w.
#include "kernels/cpu/int8/int8_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hwy/targets.h"
#include "kernels/cpu/isa/cpu_isa.h"

namespace sru::kernels::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();

// Depths about the chunks and groups of rows, widths of whole and partial blocks of columns.
const std::vector<std::pair<int, int>> kSizes = {{1, 16},   {3, 16},   {4, 48},    {17, 80},
                                                 {64, 128}, {511, 64}, {512, 208}, {1030, 96}};
constexpr int kRows = 53;  // two groups of rows that are in fixed point at a time, and a part

std::vector<float> Random(size_t size, int seed) {
  std::minstd_rand random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(size);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

// Calls use(kernel, name) for each kernel that this machine can run.
void ForEachKernel(const std::function<void(const Int8Kernel&, const std::string&)>& use) {
  if (HasAvx512Vnni()) use(VnniInt8Kernel(), VnniInt8Kernel().name());
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    use(PairInt8Kernel(), PairInt8Kernel().name());
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

std::vector<float> Multiply(const Int8Matrix& matrix, const std::vector<float>& x, int k, int n,
                            int first, int rows) {
  std::vector<float> y(static_cast<size_t>(rows) * n, kNotANumber);
  matrix.Multiply(x.data() + static_cast<size_t>(first) * k, rows, y.data());
  return y;
}

// What int8_product.h says, one value at a time.
class Expected {
 public:
  Expected(const std::vector<float>& weights, int k, int n)
      : k_(k), n_(n), scales_(n), rounded_(weights.size()) {
    for (int j = 0; j < n; ++j) {
      float largest = 0;
      for (int i = 0; i < k; ++i) largest = std::max(largest, std::abs(weights[i * n + j]));
      scales_[j] = largest / 127;
      for (int i = 0; i < k; ++i) {
        rounded_[i * n + j] = static_cast<int>(std::nearbyint(weights[i * n + j] / scales_[j]));
      }
    }
  }

  float At(const float* x, int column) const {
    float largest = 0;
    for (int i = 0; i < k_; ++i) largest = std::max(largest, std::abs(x[i]));
    const float factor = 32512 / largest;
    float sum = 0;
    for (int first = 0; first < k_; first += 512) {
      int64_t part = 0;
      for (int i = first; i < std::min(k_, first + 512); ++i) {
        part += static_cast<int64_t>(std::nearbyint(x[i] * factor)) * rounded_[i * n_ + column];
      }
      EXPECT_LE(std::abs(part), std::numeric_limits<int32_t>::max());
      sum += static_cast<float>(part);
    }
    return sum * scales_[column] * (largest / 32512);
  }

  double WeightAt(int i, int column) const {
    return static_cast<double>(rounded_[i * n_ + column]) * scales_[column];
  }

 private:
  int k_;
  int n_;
  std::vector<float> scales_;
  std::vector<int> rounded_;
};

TEST(Int8ProductTest, EveryKernelGivesTheSameBits) {
  for (const auto& [k, n] : kSizes) {
    const std::vector<float> weights = Random(static_cast<size_t>(k) * n, 1);
    const std::vector<float> x = Random(static_cast<size_t>(kRows) * k, 2);
    const Expected expected(weights, k, n);
    std::vector<float> values;
    for (int row = 0; row < kRows; ++row) {
      for (int j = 0; j < n; ++j) values.push_back(expected.At(&x[row * k], j));
    }
    int kernels = 0;
    ForEachKernel([&, k = k, n = n](const Int8Kernel& kernel, const std::string& name) {
      SCOPED_TRACE(name + ", " + std::to_string(k) + " by " + std::to_string(n));
      const Int8Matrix matrix(weights.data(), k, n, kernel);
      EXPECT_EQ(Multiply(matrix, x, k, n, 0, kRows), values);
      ++kernels;
    });
    EXPECT_GT(kernels, 0);
  }
}

TEST(Int8ProductTest, BitsDoNotDependOnTheNumberOfRows) {
  constexpr int kDepth = 600;
  constexpr int kWidth = 112;
  const std::vector<float> weights = Random(kDepth * kWidth, 3);
  const std::vector<float> x = Random(kRows * kDepth, 4);
  ForEachKernel([&](const Int8Kernel& kernel, const std::string& name) {
    const Int8Matrix matrix(weights.data(), kDepth, kWidth, kernel);
    const std::vector<float> all = Multiply(matrix, x, kDepth, kWidth, 0, kRows);
    for (int rows = 1; rows < kRows; ++rows) {
      const int first = kRows - rows;
      const std::vector<float> found = Multiply(matrix, x, kDepth, kWidth, first, rows);
      EXPECT_EQ(
          0, std::memcmp(found.data(), all.data() + first * kWidth, found.size() * sizeof(float)))
          << name << ", " << rows << " rows";
    }
  });
}

// A value of x is off by half a unit at most, the largest of its row being 32512 units, and of
// every sum of a chunk float32 keeps 24 bits.
TEST(Int8ProductTest, TheErrorIsThatOfRoundingX) {
  for (const auto& [k, n] : kSizes) {
    const std::vector<float> weights = Random(static_cast<size_t>(k) * n, 5);
    const std::vector<float> x = Random(static_cast<size_t>(kRows) * k, 6);
    const Expected expected(weights, k, n);
    const Int8Matrix matrix(weights.data(), k, n);
    const std::vector<float> y = Multiply(matrix, x, k, n, 0, kRows);
    for (int row = 0; row < kRows; ++row) {
      double largest = 0;
      for (int i = 0; i < k; ++i) largest = std::max<double>(largest, std::abs(x[row * k + i]));
      for (int j = 0; j < n; ++j) {
        double sum = 0;
        double magnitudes = 0;
        for (int i = 0; i < k; ++i) {
          sum += expected.WeightAt(i, j) * x[row * k + i];
          magnitudes += std::abs(expected.WeightAt(i, j));
        }
        ASSERT_NEAR(y[row * n + j], sum, 1.01 * magnitudes * largest / 65024 + 1e-6)
            << k << " by " << n << ", row " << row << ", column " << j;
      }
    }
  }
}

// Its own row or column is NaN, and no other differs.
TEST(Int8ProductTest, WhatIsNotFiniteGivesNaN) {
  constexpr int kDepth = 40;
  constexpr int kWidth = 80;
  for (const float bad : {kInfinity, -kInfinity, kNotANumber}) {
    std::vector<float> weights = Random(kDepth * kWidth, 7);
    std::vector<float> x = Random(8 * kDepth, 8);
    ForEachKernel([&](const Int8Kernel& kernel, const std::string& name) {
      SCOPED_TRACE(name + ", " + std::to_string(bad));
      const std::vector<float> good =
          Multiply(Int8Matrix(weights.data(), kDepth, kWidth, kernel), x, kDepth, kWidth, 0, 8);
      std::vector<float> bad_weights = weights;
      std::vector<float> bad_x = x;
      bad_weights[13 * kWidth + 70] = bad;
      bad_x[5 * kDepth + 39] = bad;
      const Int8Matrix matrix(bad_weights.data(), kDepth, kWidth, kernel);
      const std::vector<float> found = Multiply(matrix, bad_x, kDepth, kWidth, 0, 8);
      for (int i = 0; i < 8 * kWidth; ++i) {
        if (i / kWidth == 5 || i % kWidth == 70) {
          EXPECT_TRUE(std::isnan(found[i])) << i;
        } else {
          EXPECT_EQ(found[i], good[i]) << i;
        }
      }
    });
  }
}

TEST(Int8ProductTest, ZerosAndTinyValuesGiveZero) {
  constexpr int kDepth = 20;
  constexpr int kWidth = 64;
  std::vector<float> weights = Random(kDepth * kWidth, 9);
  std::vector<float> x = Random(4 * kDepth, 10);
  for (int i = 0; i < kDepth; ++i) {
    weights[i * kWidth + 3] = 0;
    weights[i * kWidth + 4] = 1e-40f;
    x[i] = 0;
    x[kDepth + i] = -1e-40f;
  }
  ForEachKernel([&](const Int8Kernel& kernel, const std::string& name) {
    SCOPED_TRACE(name);
    const Int8Matrix matrix(weights.data(), kDepth, kWidth, kernel);
    const std::vector<float> y = Multiply(matrix, x, kDepth, kWidth, 0, 4);
    for (int i = 0; i < 4 * kWidth; ++i) {
      const bool zero = i < 2 * kWidth || i % kWidth == 3 || i % kWidth == 4;
      EXPECT_EQ(y[i] == 0, zero) << i;
    }
  });
}

TEST(Int8ProductTest, AWeightTakesAByte) {
  const std::vector<float> weights(512 * 384);
  const Int8Matrix matrix(weights.data(), 512, 384);
  EXPECT_EQ(matrix.bytes(), 512 * 384 + 384 * sizeof(float));
}

}  // namespace
}  // namespace sru::kernels::cpu
