#include "server/rpc/memory_options.h"

#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_DECLARE_FLAG(bool, allow_compression);
ABSL_DECLARE_FLAG(int64_t, max_receive_memory_mb);
ABSL_DECLARE_FLAG(int64_t, max_inflight_mb);
ABSL_DECLARE_FLAG(double, send_timeout_s);

namespace sru::server {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const MemoryOptions& options) {
  const absl::Status status = ValidateMemoryOptions(options);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(MemoryOptionsTest, FlagsAndStructHaveTheSameDefaults) {
  const absl::StatusOr<MemoryOptions> flags = MemoryOptionsFromFlags();
  ASSERT_TRUE(flags.ok()) << flags.status();
  const MemoryOptions defaults;
  EXPECT_EQ(flags->allow_compression, defaults.allow_compression);
  EXPECT_EQ(flags->max_receive_mb, defaults.max_receive_mb);
  EXPECT_EQ(flags->max_inflight_mb, defaults.max_inflight_mb);
  EXPECT_EQ(flags->send_timeout, defaults.send_timeout);
  EXPECT_FALSE(defaults.allow_compression);
}

TEST(MemoryOptionsTest, FlagsAreRead) {
  absl::FlagSaver saver;
  absl::SetFlag(&FLAGS_allow_compression, true);
  absl::SetFlag(&FLAGS_max_receive_memory_mb, 200);
  absl::SetFlag(&FLAGS_max_inflight_mb, 300);
  absl::SetFlag(&FLAGS_send_timeout_s, 0);
  const absl::StatusOr<MemoryOptions> options = MemoryOptionsFromFlags();
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_TRUE(options->allow_compression);
  EXPECT_EQ(options->max_receive_mb, 200);
  EXPECT_EQ(options->max_inflight_mb, 300);
  EXPECT_EQ(options->send_timeout, absl::InfiniteDuration());
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

TEST(MemoryOptionsTest, BudgetsExistWithLittleMemoryAndWithoutKnowledge) {
  MemoryLimits limits;
  limits.limit_bytes = 8000000;
  EXPECT_EQ(ResolveMemoryBudgets({}, limits).receive_bytes, 16000000);
  EXPECT_EQ(ResolveMemoryBudgets({}, limits).inflight_bytes, 2000000);
  EXPECT_EQ(ResolveMemoryBudgets({}, MemoryLimits()).inflight_bytes, 1 << 30);
}

}  // namespace
}  // namespace sru::server
