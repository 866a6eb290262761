#include "bench/arrivals.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace sru::bench {
namespace {

constexpr double kRate = 1000;
constexpr int kCount = 100000;

std::vector<double> Gaps(uint64_t seed) {
  PoissonArrivals arrivals(kRate, seed);
  std::vector<double> gaps;
  int64_t last = 0;
  for (int i = 0; i < kCount; ++i) {
    const int64_t now = arrivals.Next();
    EXPECT_GE(now, last);
    gaps.push_back(static_cast<double>(now - last) * 1e-9);
    last = now;
  }
  return gaps;
}

// The mean of n exponential gaps has a relative standard deviation of 1/sqrt(n) = 0.3%, their
// standard deviation one of about sqrt(2/n) = 0.45%. The bounds are more than five times as wide.
TEST(PoissonArrivalsTest, GapsHaveTheMeanAndTheSpreadOfTheirRate) {
  double sum = 0, squares = 0;
  for (const double gap : Gaps(1)) {
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 1 / kRate, 0.02 / kRate);
  EXPECT_NEAR(std::sqrt(squares / kCount - mean * mean), 1 / kRate, 0.03 / kRate);
}

// An exponential gap is longer than t with probability exp(-rate t).
TEST(PoissonArrivalsTest, GapsAreExponential) {
  const std::vector<double> gaps = Gaps(2);
  for (double t : {0.1, 0.5, 1.0, 2.0, 4.0}) {
    int longer = 0;
    for (const double gap : gaps) longer += gap > t / kRate ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(longer) / kCount, std::exp(-t), 0.008) << t;
  }
}

TEST(PoissonArrivalsTest, TheSeedDecides) {
  EXPECT_EQ(Gaps(3), Gaps(3));
  EXPECT_NE(Gaps(3), Gaps(4));
}

}  // namespace
}  // namespace sru::bench
