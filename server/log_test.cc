#include "server/log.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

TEST(LogTest, OneLinePerEventInUtc) {
  const absl::Time now = absl::FromUnixMicros(1700000000123456);
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, "ready", now),
            "2023-11-14T22:13:20.123456Z INFO  ready");
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "a\nb\r\nc", now),
            "2023-11-14T22:13:20.123456Z WARN  a b  c");
  EXPECT_EQ(FormatLogLine(LogLevel::kError, "", now), "2023-11-14T22:13:20.123456Z ERROR ");
}

}  // namespace
}  // namespace sru::server
