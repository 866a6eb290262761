#include "server/calls/bounds/memory_options.h"

#include "gtest/gtest.h"

namespace sru::server::calls {
namespace {

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
