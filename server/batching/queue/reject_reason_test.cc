#include "server/batching/queue/reject_reason.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;

// The names are part of the metrics that dashboards and alerts ask for, the codes part of the wire
// contract (inference.proto).
TEST(RejectReasonTest, NamesAndCodesStayAsTheyAre) {
  std::vector<std::string> table;
  for (const RejectReason reason : kRejectReasons) {
    const RejectReasonInfo info = Describe(reason);
    table.push_back(std::string(info.name) + " " + absl::StatusCodeToString(info.code));
  }
  EXPECT_THAT(table, ElementsAre("queue_full RESOURCE_EXHAUSTED", "deadline RESOURCE_EXHAUSTED",
                                 "draining UNAVAILABLE", "no_worker UNAVAILABLE",
                                 "memory RESOURCE_EXHAUSTED", "streams RESOURCE_EXHAUSTED"));
}

TEST(RejectReasonTest, NoTwoReasonsShareAName) {
  std::set<std::string> names;
  for (const RejectReason reason : kRejectReasons) names.insert(Describe(reason).name);
  EXPECT_EQ(names.size(), kNumRejectReasons);
}

TEST(RejectReasonTest, ARefusalKeepsItsReason) {
  for (const RejectReason reason : kRejectReasons) {
    const absl::Status status = MakeRefusal(reason, "why");
    EXPECT_EQ(status.code(), Describe(reason).code);
    EXPECT_EQ(status.message(), "why");
    EXPECT_EQ(GetRejectReason(status), reason);
  }
}

TEST(RejectReasonTest, OtherStatusesHaveNone) {
  EXPECT_EQ(GetRejectReason(absl::OkStatus()), std::nullopt);
  EXPECT_EQ(GetRejectReason(absl::ResourceExhaustedError("memory")), std::nullopt);
}

TEST(RejectReasonTest, EachReasonIsCountedByItself) {
  RejectCounters counters;
  counters.Count(RejectReason::kMemory);
  counters.Count(RejectReason::kMemory);
  counters.Count(RejectReason::kDeadline);
  const RejectCounts counts = counters.counts();
  for (const RejectReason reason : kRejectReasons) {
    const int64_t expected = reason == RejectReason::kMemory     ? 2
                             : reason == RejectReason::kDeadline ? 1
                                                                 : 0;
    EXPECT_EQ(counts[reason], expected) << Describe(reason).name;
  }
}

}  // namespace
}  // namespace sru::server::batching
