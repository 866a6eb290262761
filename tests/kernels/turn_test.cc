#include "kernels/turn.h"

#include <chrono>

#include "gtest/gtest.h"

namespace sru::kernels {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::minutes;

TEST(TurnTest, EndsAfterItsLength) {
  const Turn::Clock::time_point start = Turn::Clock::now();
  Turn turn(hours(1));
  turn.Start(start);
  EXPECT_FALSE(turn.MayEnd(start));
  EXPECT_FALSE(turn.MayEnd(start + minutes(59)));
  EXPECT_TRUE(turn.MayEnd(start + minutes(60)));
}

TEST(TurnTest, TheNextBeginsAtTheEnd) {
  Turn turn(hours(1));
  turn.Start(Turn::Clock::now() - hours(2));
  EXPECT_TRUE(turn.MayEnd());
  EXPECT_FALSE(turn.MayEnd());
}

TEST(TurnTest, StartBeginsANewOne) {
  const Turn::Clock::time_point start = Turn::Clock::now();
  Turn turn(hours(1));
  turn.Start(start);
  turn.Start(start + hours(2));
  EXPECT_FALSE(turn.MayEnd(start + hours(2) + minutes(59)));
}

TEST(TurnTest, WithoutALengthItNeverEnds) {
  const Turn::Clock::time_point start = Turn::Clock::now();
  Turn turn(microseconds(0));
  turn.Start(start);
  EXPECT_FALSE(turn.MayEnd(start + hours(1)));
}

}  // namespace
}  // namespace sru::kernels
