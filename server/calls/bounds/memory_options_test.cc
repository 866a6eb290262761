#include "server/calls/bounds/memory_options.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::calls {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const MemoryOptions& options) {
  const absl::Status status = CheckRanges(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(MemoryOptionsTest, FlagsAreRead) {
  MemoryOptions options;
  EXPECT_FALSE(options.allow_compression);
  FlagTable flags;
  AddFlags(&options, &flags);
  ASSERT_TRUE(flags
                  .SetFromArguments({"--allow_compression", "--max_receive_memory_mb=200",
                                     "--max_inflight_mb=300", "--send_timeout_s=0"})
                  .ok());
  ASSERT_TRUE(flags.Check().ok());
  EXPECT_TRUE(options.allow_compression);
  EXPECT_EQ(options.max_receive_mb, 200);
  EXPECT_EQ(options.max_inflight_mb, 300);
  EXPECT_EQ(options.send_timeout, absl::InfiniteDuration());
}

TEST(MemoryOptionsTest, ErrorsNameTheFlag) {
  MemoryOptions options;
  options.max_receive_mb = 15;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_receive_memory_mb: expected 0 or 16"));
  options = {};
  options.max_inflight_mb = -1;
  EXPECT_THAT(ErrorOf(options), HasSubstr("--max_inflight_mb: expected 0 or 1"));
  options = {};
  options.send_timeout = absl::Milliseconds(1);
  EXPECT_THAT(ErrorOf(options), HasSubstr("--send_timeout_s: expected 0 (never) or 10ms"));
  options.send_timeout = -absl::Seconds(1);
  EXPECT_THAT(ErrorOf(options), HasSubstr("--send_timeout_s"));
}

TEST(MemoryOptionsTest, BudgetsAreAQuarterOfTheMemoryUnlessTold) {
  MemoryLimits limits;
  limits.limit_bytes = 1000000000;
  MemoryBudgets budgets = ResolveMemoryBudgets({}, limits);
  EXPECT_EQ(budgets.receive_bytes, 250000000);
  EXPECT_EQ(budgets.inflight_bytes, 250000000);
  MemoryOptions options;
  options.max_receive_mb = 16;
  options.max_inflight_mb = 7;
  budgets = ResolveMemoryBudgets(options, limits);
  EXPECT_EQ(budgets.receive_bytes, 16000000);
  EXPECT_EQ(budgets.inflight_bytes, 7000000);
}

TEST(MemoryOptionsTest, BudgetsBeyondTheMemoryAreWarnedOf) {
  MemoryLimits limits;
  limits.limit_bytes = 512000000;
  EXPECT_EQ(BudgetsWarning({256000000, 256000000}, limits), "");
  EXPECT_EQ(BudgetsWarning({256000000, 257000000}, limits),
            "--max_receive_memory_mb and --max_inflight_mb: 513 MB together, but this process may "
            "take 512 MB; it may be killed "
            "before they are reached");
  EXPECT_EQ(BudgetsWarning({256000000, 257000000}, MemoryLimits()), "");
}

TEST(MemoryOptionsTest, BudgetsExistWithLittleMemoryAndWithoutKnowledge) {
  MemoryLimits limits;
  limits.limit_bytes = 8000000;
  EXPECT_EQ(ResolveMemoryBudgets({}, limits).receive_bytes, 16000000);
  EXPECT_EQ(ResolveMemoryBudgets({}, limits).inflight_bytes, 2000000);
  EXPECT_EQ(ResolveMemoryBudgets({}, MemoryLimits()).inflight_bytes, 1 << 30);
}

}  // namespace
}  // namespace sru::server::calls
