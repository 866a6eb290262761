#include "server/transport/file_limit.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FileLimitTest, TooFewFilesAreRefused) {
  for (const int files : {0, 64, 95}) {
    const absl::Status status = CheckFileLimit(files);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << files;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("ulimit -n"), HasSubstr("expected at least 96"),
                      HasSubstr("found " + std::to_string(files))));
  }
  EXPECT_TRUE(CheckFileLimit(96).ok());
  EXPECT_EQ(ConnectionsWithin(96), 16);
  EXPECT_EQ(ConnectionsWithin(64), 0);
}

TEST(FileLimitTest, FewAreWarnedOf) {
  EXPECT_THAT(FileLimitWarning(128, 0), AllOf(HasSubstr("128"), HasSubstr("about 48 connections")));
  EXPECT_THAT(FileLimitWarning(335, 0), HasSubstr("about 255 connections"));
  EXPECT_THAT(FileLimitWarning(336, 0), IsEmpty());
  EXPECT_THAT(FileLimitWarning(1 << 20, 0), IsEmpty());
  // Who asks for fewer has enough.
  EXPECT_THAT(FileLimitWarning(128, 48), IsEmpty());
  EXPECT_THAT(FileLimitWarning(128, 49), HasSubstr("about 48"));
  EXPECT_THAT(FileLimitWarning(128, 10000), HasSubstr("about 48"));
}

TEST(FileLimitTest, ConnectionsHaveAnEighthOfTheMemory) {
  constexpr int64_t kMiB = 1 << 20;
  EXPECT_EQ(ConnectionsWithinMemory(10000, true, 512 * kMiB), 64 * 1024 / 48);
  EXPECT_EQ(ConnectionsWithinMemory(10000, false, 512 * kMiB), 64 * 1024 / 28);
  EXPECT_EQ(ConnectionsWithinMemory(1000, true, 512 * kMiB), 1000);
  EXPECT_EQ(ConnectionsWithinMemory(10000, true, 8192 * kMiB), 10000);
  // Without a limit of their own, memory is one.
  EXPECT_EQ(ConnectionsWithinMemory(0, true, 512 * kMiB), 64 * 1024 / 48);
  EXPECT_EQ(ConnectionsWithinMemory(10000, true, 1 * kMiB), 16);
  // A limit below the least stands.
  EXPECT_EQ(ConnectionsWithinMemory(3, true, 1 * kMiB), 3);
  EXPECT_EQ(ConnectionsWithinMemory(10000, true, 0), 10000);
  EXPECT_EQ(ConnectionsWithinMemory(0, true, 0), 0);
}

TEST(FileLimitTest, TheLimitIsWhatTheProcessMayHave) {
  const int limit = RaiseFileLimit();
  EXPECT_GT(limit, 0);
  EXPECT_EQ(RaiseFileLimit(), limit);
}

}  // namespace
}  // namespace sru::server::transport
