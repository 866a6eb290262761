#include "server/base/clock.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace sru::server {
namespace {

// tests/integration/set_clock_test.py sets the date of a server that runs.
TEST(ClockTest, BeginsAtTheDateAndNeverGoesBack) {
  const RealClock clock;
  const absl::Time first = clock.Now();
  EXPECT_LT(absl::AbsDuration(clock.WallNow() - first), absl::Minutes(1));
  absl::Time last = first;
  for (int i = 0; i < 10000; ++i) {
    const absl::Time now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
  EXPECT_GT(last, first);
}

TEST(ClockTest, AFakeOneHasOneTime) {
  FakeClock clock;
  clock.Advance(absl::Seconds(5));
  EXPECT_EQ(clock.WallNow(), clock.Now());
}

}  // namespace
}  // namespace sru::server
