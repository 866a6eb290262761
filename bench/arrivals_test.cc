#include <cmath>
#include <vector>

#include "bench/run.h"
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
