#include "server/transport/taken_rate.h"

#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class TakenRateTest : public ::testing::Test {
 protected:
  // The client takes a part of so many bytes after `waits`, and nothing waits for another `pause`.
  // Returns what it owed when the part began.
  SteadyTime::duration Take(size_t bytes, SteadyTime::duration waits,
                            SteadyTime::duration pause = seconds(0)) {
    const SteadyTime::duration owed = now_ - rate_.BeginPart(now_, bytes);
    now_ += waits;
    rate_.EndPart(now_);
    now_ += pause;
    return owed;
  }

  TakenRate rate_;
  SteadyTime now_ = SteadyTime() + std::chrono::hours(100);
};

TEST_F(TakenRateTest, WhoTakesAPartASecondOwesNothing) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Take(60, milliseconds(1000)), seconds(0));
}

TEST_F(TakenRateTest, WhatIsLongerMayTakeLonger) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Take(10 << 10, seconds(10)), seconds(0));
  Take(10 << 10, milliseconds(12500));
  EXPECT_EQ(Take(1, seconds(0)), milliseconds(2500));
}

TEST_F(TakenRateTest, EachPartThatIsTakenTooSlowlyCounts) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Take(60, seconds(20)), seconds(19 * i));
}

TEST_F(TakenRateTest, NothingIsSavedUp) {
  Take(1 << 20, seconds(1), std::chrono::hours(1));
  Take(60, seconds(20));
  EXPECT_EQ(Take(60, seconds(0)), seconds(19));
}

TEST_F(TakenRateTest, TimeInWhichNothingWaitsPays) {
  Take(60, seconds(20), seconds(12));
  EXPECT_EQ(Take(60, seconds(20), seconds(100)), seconds(7));
  EXPECT_EQ(Take(60, seconds(0)), seconds(0));
}

}  // namespace
}  // namespace sru::server::transport
