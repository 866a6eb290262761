#include "server/rpc/unsent_answers.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/poll.h"

namespace sru::server::rpc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kTimeout = absl::Seconds(30);

// Notes what happens to it under its name.
class Answer final : public UnsentAnswer {
 public:
  Answer(std::string name, std::vector<std::string>* events)
      : name_(std::move(name)), events_(*events) {}
  void Abandon() override {
    events_.push_back("abandon " + name_);
    if (on_abandon) on_abandon();
  }
  void Release() override { events_.push_back("release " + name_); }

  std::function<void()> on_abandon;

 private:
  const std::string name_;
  std::vector<std::string>& events_;
};

class UnsentAnswersTest : public ::testing::Test {
 protected:
  FakeClock clock_;
  UnsentAnswers unsent_{kTimeout, &clock_};
  std::vector<std::string> events_;
  Answer a_{"a", &events_};
  Answer b_{"b", &events_};
  Answer c_{"c", &events_};
};

TEST_F(UnsentAnswersTest, WhatLeavesInTimeIsLeftAlone) {
  unsent_.Add(&a_);
  unsent_.Add(&b_);
  EXPECT_EQ(unsent_.count(), 2);
  clock_.Advance(kTimeout - absl::Milliseconds(1));
  unsent_.CloseLate();
  EXPECT_TRUE(unsent_.Remove(&a_));
  EXPECT_TRUE(unsent_.Remove(&b_));
  EXPECT_EQ(unsent_.count(), 0);
  clock_.Advance(kTimeout);
  unsent_.CloseLate();
  EXPECT_THAT(events_, IsEmpty());
  EXPECT_EQ(unsent_.abandoned(), 0);
}

TEST_F(UnsentAnswersTest, LateOnesAreAbandonedOnceAndInTheirOrder) {
  unsent_.Add(&a_);
  clock_.Advance(absl::Seconds(10));
  unsent_.Add(&b_);
  unsent_.Add(&c_);
  EXPECT_TRUE(unsent_.Remove(&b_));
  const absl::Time start = clock_.Now();
  EXPECT_EQ(unsent_.CloseLate(), start + absl::Seconds(20));
  clock_.Advance(absl::Seconds(20));
  EXPECT_EQ(unsent_.CloseLate(), start + absl::Seconds(30));
  EXPECT_THAT(events_, ElementsAre("abandon a"));
  clock_.Advance(absl::Seconds(10));
  unsent_.CloseLate();
  unsent_.CloseLate();
  EXPECT_THAT(events_, ElementsAre("abandon a", "abandon c"));
  EXPECT_EQ(unsent_.abandoned(), 2);
  EXPECT_EQ(unsent_.count(), 2);  // they stay until gRPC is done with them
  EXPECT_TRUE(unsent_.Remove(&a_));
  EXPECT_TRUE(unsent_.Remove(&c_));
  EXPECT_EQ(unsent_.count(), 0);
}

TEST_F(UnsentAnswersTest, OneThatEndsWhileItIsAbandonedIsReleasedByTheOther) {
  a_.on_abandon = [this] {
    EXPECT_FALSE(unsent_.Remove(&a_));
    EXPECT_TRUE(unsent_.Remove(&b_));  // on the same connection
  };
  unsent_.Add(&a_);
  unsent_.Add(&b_);
  clock_.Advance(kTimeout);
  unsent_.CloseLate();
  EXPECT_THAT(events_, ElementsAre("abandon a", "release a"));
  EXPECT_EQ(unsent_.count(), 0);
}

// What a call's end deletes must be there for as long as it is being abandoned.
TEST_F(UnsentAnswersTest, OneThatEndsElsewhereMeanwhileWaits) {
  std::thread other;
  std::atomic<bool> removed{false};
  a_.on_abandon = [&] {
    other = std::thread([&] {
      EXPECT_TRUE(unsent_.Remove(&a_));
      removed = true;
    });
    EXPECT_TRUE(sru::testing::PollUntil([this] { return unsent_.count() == 0; }));
    EXPECT_FALSE(removed);
  };
  unsent_.Add(&a_);
  clock_.Advance(kTimeout);
  unsent_.CloseLate();
  other.join();
  EXPECT_THAT(events_, ElementsAre("abandon a"));
}

TEST_F(UnsentAnswersTest, ASleeperIsNeverTooLate) {
  // With an empty list it may sleep for the whole timeout: an answer that comes meanwhile is due no
  // earlier.
  EXPECT_EQ(unsent_.CloseLate(), clock_.Now() + kTimeout);
}

TEST_F(UnsentAnswersTest, OrderHoldsWhenTheClockIsSetBack) {
  unsent_.Add(&a_);
  clock_.Advance(-absl::Seconds(5));
  unsent_.Add(&b_);
  clock_.Advance(absl::Seconds(5) + kTimeout);
  unsent_.CloseLate();
  EXPECT_THAT(events_, ElementsAre("abandon a", "abandon b"));
  EXPECT_TRUE(unsent_.Remove(&a_));
  EXPECT_TRUE(unsent_.Remove(&b_));
}

TEST_F(UnsentAnswersTest, ADrainWaitsForTheLastOrItsDeadline) {
  EXPECT_TRUE(unsent_.WaitUntilNone(absl::ZeroDuration()));
  unsent_.Add(&a_);
  EXPECT_FALSE(unsent_.WaitUntilNone(absl::ZeroDuration()));
  std::thread sender([this] { EXPECT_TRUE(unsent_.Remove(&a_)); });
  EXPECT_TRUE(unsent_.WaitUntilNone(absl::InfiniteDuration()));
  sender.join();
}

TEST(UnsentAnswersThreadTest, TheThreadAbandonsAndEnds) {
  const RealClock clock;
  std::vector<std::string> events;
  Answer answer("a", &events);
  {
    UnsentAnswers unsent(absl::Milliseconds(10), &clock);
    unsent.Start();
    unsent.Add(&answer);
    EXPECT_TRUE(sru::testing::PollUntil([&unsent] { return unsent.abandoned() == 1; }));
    unsent.Stop();
    EXPECT_TRUE(unsent.Remove(&answer));
  }
  EXPECT_THAT(events, ElementsAre("abandon a"));
}

TEST(UnsentAnswersThreadTest, WithoutATimeoutNobodyIsAbandoned) {
  FakeClock clock;
  std::vector<std::string> events;
  Answer answer("a", &events);
  UnsentAnswers unsent(absl::InfiniteDuration(), &clock);
  unsent.Start();
  unsent.Add(&answer);
  clock.Advance(absl::Hours(10000));
  unsent.CloseLate();
  EXPECT_TRUE(unsent.Remove(&answer));
  EXPECT_THAT(events, IsEmpty());
}

}  // namespace
}  // namespace sru::server::rpc
