#include "bench/histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace sru::bench {
namespace {

TEST(HistogramTest, AnEmptyOneGivesZeros) {
  Histogram histogram;
  EXPECT_EQ(histogram.count(), 0);
  EXPECT_EQ(histogram.min(), 0);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.mean(), 0);
  EXPECT_EQ(histogram.Percentile(50), 0);
}

TEST(HistogramTest, OneValueIsEveryPercentile) {
  for (int64_t value : {int64_t{0}, int64_t{1}, int64_t{255}, int64_t{256}, int64_t{123456789},
                        std::numeric_limits<int64_t>::max()}) {
    Histogram histogram;
    histogram.Add(value);
    for (double percent : {0.0, 50.0, 99.9, 100.0}) {
      EXPECT_EQ(histogram.Percentile(percent), value) << percent;
    }
  }
}

TEST(HistogramTest, PercentilesAreNearestRank) {
  Histogram histogram;
  for (int value = 1; value <= 10; ++value) histogram.Add(value);
  EXPECT_EQ(histogram.Percentile(0), 1);
  EXPECT_EQ(histogram.Percentile(10), 1);
  EXPECT_EQ(histogram.Percentile(11), 2);
  EXPECT_EQ(histogram.Percentile(50), 5);
  EXPECT_EQ(histogram.Percentile(50.1), 6);
  EXPECT_EQ(histogram.Percentile(90), 9);
  EXPECT_EQ(histogram.Percentile(91), 10);
  EXPECT_EQ(histogram.Percentile(100), 10);
  EXPECT_DOUBLE_EQ(histogram.mean(), 5.5);
}

TEST(HistogramTest, NegativeValuesCountAsZero) {
  Histogram histogram;
  histogram.Add(-5);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.count(), 1);
}

// Compares with the sorted values themselves, over eleven orders of magnitude.
TEST(HistogramTest, PercentilesAreWithinTheErrorBound) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponent(0, 11);
  std::vector<int64_t> values;
  Histogram histogram;
  for (int i = 0; i < 20000; ++i) {
    values.push_back(static_cast<int64_t>(std::pow(10, exponent(random))));
    histogram.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  for (double percent : {0.1, 1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9, 99.99}) {
    const auto rank = static_cast<size_t>(std::ceil(percent / 100 * values.size()));
    const auto expected = static_cast<double>(values[rank - 1]);
    EXPECT_NEAR(histogram.Percentile(percent), expected, expected / 256 + 1) << percent;
  }
  EXPECT_EQ(histogram.Percentile(0), values.front());
  EXPECT_EQ(histogram.Percentile(100), values.back());
}

TEST(HistogramTest, MergedIsTheSameAsAddedToOne) {
  std::mt19937_64 random(3);
  Histogram all, parts[3], merged;
  for (int i = 0; i < 3000; ++i) {
    const auto value = static_cast<int64_t>(random() % 10000000);
    all.Add(value);
    parts[i % 3].Add(value);
  }
  for (const Histogram& part : parts) merged.Merge(part);
  merged.Merge(Histogram());
  EXPECT_EQ(merged.count(), all.count());
  EXPECT_EQ(merged.min(), all.min());
  EXPECT_EQ(merged.max(), all.max());
  for (double percent = 0; percent <= 100; percent += 0.5) {
    EXPECT_EQ(merged.Percentile(percent), all.Percentile(percent));
  }
}

}  // namespace
}  // namespace sru::bench
