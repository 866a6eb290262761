#include "kernels/turn.h"

#include <chrono>
#include <thread>

#include "gtest/gtest.h"

namespace sru::kernels {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;

TEST(TurnTest, EndsAfterItsLength) {
  Turn turn(milliseconds(1));
  turn.Start();
  std::this_thread::sleep_for(milliseconds(2));
  EXPECT_TRUE(turn.MayEnd());
}

TEST(TurnTest, DoesNotEndBefore) {
  Turn turn(hours(1));
  turn.Start();
  EXPECT_FALSE(turn.MayEnd());
}

TEST(TurnTest, StartBeginsANewOne) {
  Turn turn(milliseconds(200));
  std::this_thread::sleep_for(milliseconds(201));
  turn.Start();
  const auto start = std::chrono::steady_clock::now();
  const bool ended = turn.MayEnd();
  if (std::chrono::steady_clock::now() - start >= milliseconds(200)) GTEST_SKIP() << "too slow";
  EXPECT_FALSE(ended);
}

TEST(TurnTest, WithoutALengthItNeverEnds) {
  Turn turn(microseconds(0));
  turn.Start();
  std::this_thread::sleep_for(milliseconds(1));
  EXPECT_FALSE(turn.MayEnd());
}

}  // namespace
}  // namespace sru::kernels
