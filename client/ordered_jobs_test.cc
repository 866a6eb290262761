#include "client/ordered_jobs.h"

#include <atomic>
#include <vector>

#include "absl/synchronization/barrier.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::client {
namespace {

using ::testing::ElementsAre;

TEST(OrderedJobsTest, HandsOverInOrderWhateverFinishesFirst) {
  std::vector<int> order;
  absl::Notification second_ran;
  OrderedJobs jobs(2);
  EXPECT_TRUE(jobs.Add([&] {
    second_ran.WaitForNotification();
    return [&] {
      order.push_back(1);
      return true;
    };
  }));
  EXPECT_TRUE(jobs.Add([&] {
    second_ran.Notify();
    return [&] {
      order.push_back(2);
      return true;
    };
  }));
  EXPECT_TRUE(jobs.Drain());
  EXPECT_THAT(order, ElementsAre(1, 2));
  EXPECT_FALSE(jobs.Add([] { return [] { return true; }; }));
}

TEST(OrderedJobsTest, RunsAsManyAtATimeAsThereAreThreads) {
  constexpr int kThreads = 4;
  auto* barrier = new absl::Barrier(kThreads);  // no job passes it until all have come
  OrderedJobs jobs(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    EXPECT_TRUE(jobs.Add([barrier] {
      if (barrier->Block()) delete barrier;
      return [] { return true; };
    }));
  }
  EXPECT_TRUE(jobs.Drain());
}

TEST(OrderedJobsTest, ManyJobs) {
  constexpr int kJobs = 1000;
  std::vector<int> order;
  OrderedJobs jobs(3);
  for (int i = 0; i < kJobs; ++i) {
    ASSERT_TRUE(jobs.Add([&order, i] {
      return [&order, i] {
        order.push_back(i);
        return true;
      };
    }));
  }
  EXPECT_TRUE(jobs.Drain());
  ASSERT_EQ(order.size(), static_cast<size_t>(kJobs));
  for (int i = 0; i < kJobs; ++i) EXPECT_EQ(order[i], i);
}

TEST(OrderedJobsTest, StopsWhenAResultSaysSo) {
  std::atomic<int> handed_over{0};
  OrderedJobs jobs(2);
  int added = 0;
  // Add() would go on for ever if nothing stopped it.
  while (jobs.Add([&, n = added] {
    return [&, n] {
      ++handed_over;
      return n < 5;
    };
  })) {
    ++added;
  }
  EXPECT_FALSE(jobs.Drain());
  EXPECT_EQ(handed_over, 6);
  EXPECT_GE(added, 6);
}

}  // namespace
}  // namespace sru::client
