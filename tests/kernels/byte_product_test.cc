// Products of rounded weights and rows: the bits of program.h's equations from every kernel that
// this machine can run, for any number of rows.
#include "kernels/cpu/int8/byte_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "hwy/targets.h"
#include "kernels/cpu/isa/cpu_isa.h"
#include "kernels/testing/guarded.h"

namespace sru::kernels::cpu {
namespace {

using ::sru::testing::Guarded;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

void ForEachByteKernel(const std::function<void(const Int8Kernel&, const std::string&)>& use) {
  if (HasAvx512Vnni()) use(VnniInt8Kernel(), VnniInt8Kernel().name());
  for (int64_t left = hwy::SupportedTargets(); left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    use(PairInt8Kernel(), PairInt8Kernel().name());
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
}

// Weights [n][k] at the limits of what they may be, rows of x some values of which are clipped and
// one of which is tiny.
struct Example {
  Example(int k, int n, float activation) : k(k), n(n) {
    std::minstd_rand random(static_cast<unsigned>(k * n));
    std::normal_distribution<float> normal;
    weights.resize(static_cast<size_t>(k) * n);
    for (int8_t& w : weights) w = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    std::fill_n(weights.begin(), k, int8_t{-127});
    for (int i = 0; i < n; ++i) bias.push_back(normal(random));
    for (int i = 0; i < kByteRows * k; ++i) x.push_back(3.0f * normal(random));
    std::fill_n(x.begin(), k, 1e-31f);
    view = {weights.data(), weights.size(), 51.7f, activation};
  }

  float At(int row, int i) const {
    const float* const values = &x[static_cast<size_t>(row) * k];
    float largest = 0;
    for (int j = 0; j < k; ++j) largest = std::max(largest, std::abs(values[j]));
    const bool given = view.activation > 0;
    if (!given && largest < 1e-30f) return bias[i];
    const float a = given ? view.activation : 127.0f / largest;
    int64_t sum = 0;
    int64_t all = 0;
    for (int j = 0; j < k; ++j) {
      const float r = std::clamp(std::nearbyint(values[j] * a), -127.0f, 127.0f);
      const int w = weights[static_cast<size_t>(i) * k + j];
      sum += (static_cast<int>(r) + (given ? 127 : 0)) * w;
      all += w;
    }
    const float shift = given ? -((127.0f / a) * (127.0f / view.multiplier)) / 127.0f : 0.0f;
    const float shifted = static_cast<float>(all) * shift;
    const float product = static_cast<float>(sum) * (1.0f / (a * view.multiplier));
    return product + (shifted + bias[i]);
  }

  int k, n;
  std::vector<int8_t> weights;
  std::vector<float> bias, x;
  Int8View view;
};

TEST(ByteProductTest, HasTheBitsOfTheEquationsInEveryKernel) {
  for (const auto& [k, n] : std::vector<std::pair<int, int>>{
           {1, 1}, {3, 16}, {17, 80}, {64, 128}, {200, 65}, {1536, 70}}) {
    for (const float activation : {0.0f, 30.0f}) {
      const Example e(k, n, activation);
      const FloatView bias = {e.bias.data(), e.bias.size()};
      ForEachByteKernel([&, k = k, n = n](const Int8Kernel& kernel, const std::string& name) {
        SCOPED_TRACE(name + ", " + std::to_string(k) + " by " + std::to_string(n) +
                     ", activation " + std::to_string(activation));
        const ByteMatrix matrix(e.view, k, n, bias, kernel);
        ByteRows rounded;
        rounded.Add(k);
        RunPlan plan(std::make_shared<RunMemory>(1));
        rounded.LayOut(&plan);
        plan.Close();
        const RunPlan::Scope memory(&plan);
        for (const int rows : {1, 2, 3, 4, 5, 11, kByteRows}) {
          const int first = rows == 1 ? 0 : kByteRows - rows;
          for (const bool relu : {false, true}) {
            Guarded<float> y(static_cast<size_t>(rows) * n, kNaN);
            matrix.Multiply(e.x.data() + static_cast<size_t>(first) * k, rows, relu, &rounded,
                            y.data());
            EXPECT_TRUE(y.IsIntact());
            for (int r = 0; r < rows; ++r) {
              for (int i = 0; i < n; ++i) {
                const float expected = e.At(first + r, i);
                ASSERT_EQ(y.data()[r * n + i], relu ? std::max(0.0f, expected) : expected)
                    << "row " << r << " of " << rows << ", column " << i;
              }
            }
          }
        }
      });
    }
  }
}

TEST(ByteProductTest, TablesHaveTheSameBits) {
  for (const auto& [k, n] : std::vector<std::pair<int, int>>{{1, 3}, {70, 50}, {256, 33}}) {
    for (const float activation : {0.0f, 30.0f}) {
      const Example e(k, n, activation);
      const size_t padded = PaddedBytes(k);
      std::vector<int8_t> table(n * padded);
      for (int i = 0; i < n; ++i) {
        std::copy_n(&e.weights[static_cast<size_t>(i) * k], k, &table[i * padded]);
      }
      const ByteScales scales(e.view, k, n, {e.bias.data(), e.bias.size()}, n, /*for_table=*/true);
      const std::vector<int32_t> ids = {0, 2, 1, 2, n - 1, n - 2};
      const std::vector<int32_t> which = {3, 0, 7};
      ForEachByteKernel([&, k = k, n = n](const Int8Kernel& kernel, const std::string& name) {
        for (const bool some : {false, true}) {
          SCOPED_TRACE(name + ", " + std::to_string(k) + " values" + (some ? ", some rows" : ""));
          ByteRows rounded;
          rounded.Add(k);
          RunPlan plan(std::make_shared<RunMemory>(1));
          rounded.LayOut(&plan);
          plan.Close();
          const RunPlan::Scope memory(&plan);
          rounded.Round(kernel, e.x.data(), which.data(), 3, k, scales, /*for_table=*/true);
          ByteTableCall call;
          call.k = static_cast<int>(padded);
          call.table = table.data();
          call.offsets = activation > 0 ? nullptr : scales.offsets.data();
          call.ids = some ? ids.data() : nullptr;
          call.first = some ? 0 : 1;
          call.count = some ? static_cast<int>(ids.size()) : n - 1;
          call.x = rounded.x();
          call.x_rows = rounded.rows();
          call.rows = 3;
          Guarded<float> z(static_cast<size_t>(3) * call.count, kNaN);
          call.z = z.data();
          call.z_stride = call.count;
          kernel.multiply_byte_table(call);
          EXPECT_TRUE(z.IsIntact());
          for (int r = 0; r < 3; ++r) {
            for (int j = 0; j < call.count; ++j) {
              const int id = some ? ids[j] : 1 + j;
              ASSERT_EQ(z.data()[r * call.count + j] + scales.bias.data()[id], e.At(which[r], id))
                  << "row " << r << ", column " << j;
            }
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace sru::kernels::cpu
