// Products whose rows must have the same bits in any number of rows, and the probe that says so.
#include "kernels/cpu/stacks/product.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/common/row_probe.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/library_calls.h"
#include "kernels/cpu/isa/cpu_isa.h"

namespace sru::kernels::cpu {
namespace {

// A product without sums, which is wrong once.
class PlainProduct {
 public:
  static constexpr int kK = 2;
  PlainProduct(int n, int max_rows) : n_(n), trial(kK, n, max_rows) {}

  // Wrong for one column of the row that begins with this value, at this place or at any.
  struct Fault {
    float first = 0;
    int column = 0;
    int place = -1;
    bool only_before_nan = false;
  };

  bool Agrees(int rows, const Fault* fault) {
    return trial.Agrees(rows, [&] {
      const float* const x = trial.x();
      for (int row = 0; row < rows; ++row) {
        for (int j = 0; j < n_; ++j) trial.y()[row * n_ + j] = x[row * kK] + x[row * kK + 1] * j;
        if (fault == nullptr) continue;
        float& value = trial.y()[row * n_ + fault->column];
        const bool garbage = std::isnan(x[(rows - 1) * kK]);
        if ((fault->place < 0 ? x[row * kK] == fault->first : row == fault->place) &&
            (garbage || !fault->only_before_nan)) {
          value = std::nextafter(value, std::numeric_limits<float>::infinity());
        }
      }
    });
  }

 private:
  int n_;

 public:
  RowTrial trial;
};

// Each of 10,000 values, for some of them, at each number of rows.
TEST(RowProbeTest, OneWrongValueOfTenThousandIsSeen) {
  for (const int n : {1, 3, 16, 100, 1536}) {
    const RowProbe probe(PlainProduct::kK, n);
    ASSERT_GE(probe.period() * n, 10'000);
    const std::vector<float> table = probe.Table(/*spread=*/true);
    std::mt19937 random(n);
    for (const int rows : {1, 2, 3, 7, 8, 10, 64, 256}) {
      SCOPED_TRACE(std::to_string(n) + " columns, rows " + std::to_string(rows));
      PlainProduct product(n, 256);
      ASSERT_TRUE(product.Agrees(256, nullptr));
      for (int i = 0; i < 5; ++i) {
        PlainProduct::Fault fault;
        const int row = i == 0 ? probe.period() - 1 : static_cast<int>(random() % probe.period());
        fault.first = table[row * PlainProduct::kK];
        fault.column = static_cast<int>(random() % n);
        EXPECT_FALSE(product.Agrees(rows, &fault)) << "row " << row << ", column " << fault.column;
        EXPECT_TRUE(product.Agrees(rows, nullptr));
      }
    }
  }
}

TEST(RowProbeTest, EachPlaceAndWhatStandsBehindAreTried) {
  constexpr int kRows = 40;
  for (const int n : {16, 1536}) {
    PlainProduct product(n, kRows);
    PlainProduct::Fault fault;
    for (fault.place = 0; fault.place < kRows; ++fault.place) {
      fault.only_before_nan = false;
      // Before anything is known as well: one place differs from the others.
      EXPECT_FALSE(PlainProduct(n, kRows).Agrees(kRows, &fault)) << fault.place;
      fault.only_before_nan = true;
      const bool real = fault.place < kRows - RowProbe::kMostGarbage;
      EXPECT_EQ(PlainProduct(n, kRows).Agrees(kRows, &fault), !real) << fault.place;
    }
  }
}

struct Shape {
  int k;
  int n;
};

class ProductTest : public ::testing::TestWithParam<ProductType> {};

// With other rows and weights than the probe's; those behind are NaN.
TEST_P(ProductTest, ARowHasTheSameBitsInAnyNumberOfRowsAndAtAnyPlace) {
  if (GetParam() == ProductType::kBFloat16 && !HasAvx512Bf16()) {
    GTEST_SKIP() << "this machine has no products in bfloat16";
  }
  UseOneThread();
  for (const int n : {1, 3, 16, 17, 33, 48, 64, 128, 304, 512}) {
    for (const int k : {1, 2, 17, 18, 25, 32, 50, 64, 127, 128, 256, 300}) {
      SCOPED_TRACE(std::to_string(k) + " by " + std::to_string(n));
      constexpr int kMaxRows = 80;
      std::mt19937 random(k * 1000 + n);
      std::normal_distribution<float> normal;
      const auto values = [&](size_t count) {
        std::vector<float> all(count);
        for (float& value : all) value = normal(random);
        return all;
      };
      const Product product(GetParam(), values(size_t(k) * n).data(), k, n, RowBuckets(kMaxRows));
      // One implementation for all of them, in steps that serve a single row.
      for (const ProductShape::Bucket& bucket : product.shape().buckets) {
        EXPECT_STREQ(bucket.description.impl_info_str(),
                     product.shape().buckets[0].description.impl_info_str());
      }
      EXPECT_LE(product.shape().buckets[0].rows, 8);
      const int most = product.max_rows();
      ASSERT_GE(most, kMaxRows / 2);
      ProductRunner runner(product);
      const std::vector<float> x = values(size_t(most) * k);
      std::vector<float> y(size_t(most) * n);
      const auto run = [&](const std::vector<float>& from, int rows) {
        std::vector<BFloat16> rounded(from.size());
        if (GetParam() == ProductType::kBFloat16) {
          ToBFloat16Row(from.data(), from.size(), rounded.data());
          runner.Run(product, rounded.data(), rows, y.data());
        } else {
          runner.Run(product, from.data(), rows, y.data());
        }
      };
      run(x, most);
      const std::vector<float> expected = y;
      for (int rows = 1; rows <= most; ++rows) {
        const int first = static_cast<int>(random() % (most - rows + 1));
        std::vector<float> part(x.size(), std::numeric_limits<float>::quiet_NaN());
        std::copy_n(&x[size_t(first) * k], size_t(rows) * k, part.data());
        run(part, rows);
        ASSERT_EQ(std::memcmp(y.data(), &expected[size_t(first) * n], size_t(rows) * n * 4), 0)
            << rows << " rows from " << first;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, ProductTest,
                         ::testing::Values(ProductType::kFloat32, ProductType::kBFloat16),
                         [](const auto& info) {
                           return info.param == ProductType::kFloat32 ? "float32" : "bfloat16";
                         });

}  // namespace
}  // namespace sru::kernels::cpu
