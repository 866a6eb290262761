#include "server/calls/byte_budget.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace sru::server::calls {
namespace {

TEST(ByteBudgetTest, WhatIsReservedIsGivenBack) {
  ByteBudget budget(100);
  {
    ByteReservation a(&budget);
    EXPECT_TRUE(a.Grow(60));
    EXPECT_TRUE(a.Grow(10));
    EXPECT_EQ(a.bytes(), 70);
    EXPECT_EQ(budget.used(), 70);
    a.ShrinkTo(30);
    EXPECT_EQ(budget.used(), 30);
    a.ShrinkTo(50);  // does not grow
    EXPECT_EQ(a.bytes(), 30);
  }
  EXPECT_EQ(budget.used(), 0);
}

TEST(ByteBudgetTest, OverTheLimitNothingChanges) {
  ByteBudget budget(100);
  ByteReservation a(&budget);
  ByteReservation b(&budget);
  EXPECT_TRUE(a.Grow(100));
  EXPECT_FALSE(b.Grow(1));
  EXPECT_FALSE(a.Grow(1));
  EXPECT_EQ(a.bytes(), 100);
  EXPECT_EQ(b.bytes(), 0);
  EXPECT_EQ(budget.used(), 100);
  a.ShrinkTo(99);
  EXPECT_TRUE(b.Grow(1));
}

TEST(ByteBudgetTest, OneCallerLeavesAFifthToOthers) {
  ByteBudget budget(100);
  ByteShare greedy;
  ByteReservation held(&budget, &greedy);
  EXPECT_FALSE(held.Grow(81));
  EXPECT_EQ(greedy.held(), 0);
  EXPECT_EQ(budget.used(), 0);
  EXPECT_TRUE(held.Grow(60));
  ByteReservation more(&budget, &greedy);
  EXPECT_FALSE(more.Grow(21));
  EXPECT_TRUE(more.Grow(20));
  EXPECT_EQ(greedy.held(), 80);
  ByteShare polite;
  {
    ByteReservation other(&budget, &polite);
    EXPECT_TRUE(other.Grow(16));
    EXPECT_FALSE(more.Grow(1));
  }
  EXPECT_EQ(polite.held(), 0);
  more.ShrinkTo(0);
  EXPECT_EQ(greedy.held(), 60);
  EXPECT_EQ(budget.used(), 60);
}

TEST(ByteBudgetTest, AShareMayComeLater) {
  ByteBudget budget(100);
  ByteShare share;
  {
    ByteReservation held(&budget);
    EXPECT_TRUE(held.Grow(90));  // nobody's
    held.SetShare(&share);
    EXPECT_EQ(share.held(), 90);
    EXPECT_FALSE(held.Grow(1));
  }
  EXPECT_EQ(share.held(), 0);
}

TEST(ByteBudgetTest, ManyThreadsNeverPassTheLimitAndLoseNothing) {
  ByteBudget budget(1000);
  std::atomic<bool> passed{false};
  std::atomic<int> granted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&budget, &passed, &granted] {
      for (int i = 0; i < 20000; ++i) {
        ByteReservation held(&budget);
        if (!held.Grow(400)) continue;
        ++granted;
        // Two threads hold 800. A third one that is being refused may show for a moment, but holds
        // nothing.
        if (held.bytes() != 400) passed = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(passed);
  EXPECT_GT(granted, 0);
  EXPECT_EQ(budget.used(), 0);
}

}  // namespace
}  // namespace sru::server::calls
