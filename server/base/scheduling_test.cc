#include "server/base/scheduling.h"

#include <sched.h>

#include <thread>

#include "gtest/gtest.h"

namespace sru::server {
namespace {

// On a thread of its own, since a policy cannot be taken back by its value alone.
template <typename Body>
void OnThread(const Body& body) {
  std::thread(body).join();
}

TEST(SchedulingTest, BatchHoldsForThreadsStartedLater) {
  OnThread([] {
    if (sched_getscheduler(0) != SCHED_OTHER) GTEST_SKIP() << "the tests run under another policy";
    const absl::Status status = ApplyScheduling(Scheduling::kBatch);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH);
    OnThread([] { EXPECT_EQ(sched_getscheduler(0), SCHED_BATCH); });
  });
}

TEST(SchedulingTest, NormalChangesNothing) {
  OnThread([] {
    const int before = sched_getscheduler(0);
    EXPECT_TRUE(ApplyScheduling(Scheduling::kNormal).ok());
    EXPECT_EQ(sched_getscheduler(0), before);
  });
}

TEST(SchedulingTest, AChosenPolicyIsLeftAsItIs) {
  OnThread([] {
    const sched_param parameters{};
    ASSERT_EQ(sched_setscheduler(0, SCHED_IDLE, &parameters), 0);
    EXPECT_TRUE(ApplyScheduling(Scheduling::kBatch).ok());
    EXPECT_EQ(sched_getscheduler(0), SCHED_IDLE);
  });
}

}  // namespace
}  // namespace sru::server
