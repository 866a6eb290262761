#include "server/base/log.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sru::server {
namespace {

const absl::Time kNow = absl::FromUnixMicros(1700000000123456);

TEST(LogTest, OneLinePerEventInUtc) {
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, "ready", kNow),
            "2023-11-14T22:13:20.123456Z INFO  ready");
  EXPECT_EQ(FormatLogLine(LogLevel::kWarning, "a\nb\r\nc\x1b[0m", kNow),
            "2023-11-14T22:13:20.123456Z WARN  a b  c [0m");
  EXPECT_EQ(FormatLogLine(LogLevel::kError, "", kNow), "2023-11-14T22:13:20.123456Z ERROR ");
}

TEST(LogTest, TextFieldsAreQuotedWhereTheyNeedIt) {
  EXPECT_EQ(FormatLogLine(LogLevel::kInfo, "m", kNow,
                          {{"a", "plain/1.0"},
                           {"b", "two words"},
                           {"c", ""},
                           {"d", "x=y"},
                           {"e", "say \"no\"\n"},
                           {"f", int64_t{-3}},
                           {"g", 12.5}}),
            "2023-11-14T22:13:20.123456Z INFO  m a=plain/1.0 b=\"two words\" c=\"\" d=\"x=y\" "
            "e=\"say \\\"no\\\"\\n\" f=-3 g=12.5");
}

TEST(LogTest, JsonReadsBack) {
  const std::string line = FormatLogLine(
      LogLevel::kWarning, "tab\there", kNow,
      {{"text", "\"\\\n\xc3\xa9"}, {"bad", "\xff"}, {"n", int64_t{1} << 60}, {"x", 0.5}},
      LogFormat::kJson);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  const nlohmann::json parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["time"], "2023-11-14T22:13:20.123456Z");
  EXPECT_EQ(parsed["level"], "warning");
  EXPECT_EQ(parsed["message"], "tab\there");
  EXPECT_EQ(parsed["text"], "\"\\\n\xc3\xa9");
  EXPECT_EQ(parsed["bad"], "\xef\xbf\xbd");
  EXPECT_EQ(parsed["n"], int64_t{1} << 60);
  EXPECT_EQ(parsed["x"], 0.5);
}

TEST(LogTest, LinesBelowTheLevelAreDropped) {
  const LogOptions before = GetLogOptions();
  LogOptions options;
  options.level = LogLevel::kWarning;
  SetLogOptions(options);
  ::testing::internal::CaptureStderr();
  LogInfo("quiet");
  LogWarning("loud");
  ASSERT_TRUE(FlushLog(absl::Seconds(30)));
  const std::string text = ::testing::internal::GetCapturedStderr();
  SetLogOptions(before);
  EXPECT_EQ(text.find("quiet"), std::string::npos);
  EXPECT_NE(text.find("WARN  loud\n"), std::string::npos);
}

}  // namespace
}  // namespace sru::server
