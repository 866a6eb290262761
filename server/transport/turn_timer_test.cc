#include "server/transport/turn_timer.h"

#include <optional>

#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class TurnTimerTest : public ::testing::Test {
 protected:
  // A turn that takes `used` of the processor and is `passed` long.
  std::optional<TurnTimer::Duration> Turn(microseconds used, microseconds passed) {
    timer_.Begin();
    used_ += used;
    now_ += passed;
    const std::optional<TurnTimer::Duration> counted = timer_.End();
    used_ += microseconds(2);  // waits for the next one
    now_ += milliseconds(5);
    return counted;
  }

  SteadyTime now_;
  microseconds used_{0};
  int readings_ = 0;
  TurnTimer timer_{[this] { return now_; },
                   [this] {
                     ++readings_;
                     return used_;
                   }};
};

TEST_F(TurnTimerTest, ALongTurnCountsWithItsProcessorTime) {
  EXPECT_EQ(Turn(microseconds(900), microseconds(1000)), microseconds(900));
  // Another program had the core for most of it.
  EXPECT_EQ(Turn(microseconds(100), milliseconds(50)), microseconds(100));
  EXPECT_EQ(Turn(microseconds(900), microseconds(900)), microseconds(900));
}

TEST_F(TurnTimerTest, ShortTurnsCostFewReadings) {
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(Turn(microseconds(3), microseconds(3)), std::nullopt);
  EXPECT_LT(readings_, 100);
}

TEST_F(TurnTimerTest, WhatCameBeforeALongTurnCountsForLittle) {
  for (int before = 0; before < 200; ++before) {
    for (int i = 0; i < before; ++i) Turn(microseconds(20), microseconds(20));
    const std::optional<TurnTimer::Duration> counted = Turn(microseconds(700), milliseconds(3));
    ASSERT_TRUE(counted.has_value());
    EXPECT_GE(*counted, microseconds(700));
    EXPECT_LT(*counted, microseconds(700) + TurnTimer::kMostBefore + microseconds(25));
  }
}

}  // namespace
}  // namespace sru::server::transport
