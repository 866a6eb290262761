#include "server/telemetry/recent_calls.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::telemetry {
namespace {

using ::testing::ElementsAre;

RecentCall Call(absl::StatusCode code, const std::string& error) {
  RecentCall call;
  call.code = code;
  call.line = error;
  return call;
}

std::vector<std::string> ErrorsOf(const RecentCalls& calls) {
  std::vector<std::string> errors;
  for (const RecentCall& call : calls.List()) errors.push_back(call.line);
  return errors;
}

TEST(RecentCallsTest, KeepsTheLastOnes) {
  RecentCalls calls(3);
  EXPECT_THAT(ErrorsOf(calls), ElementsAre());
  for (const char* error : {"a", "b", "c", "d", "e"}) {
    calls.Add(Call(absl::StatusCode::kInternal, error));
  }
  EXPECT_THAT(ErrorsOf(calls), ElementsAre("e", "d", "c"));
}

TEST(RecentCallsTest, AFloodOfOneCodeLeavesTheOthers) {
  RecentCalls calls(4);
  calls.Add(Call(absl::StatusCode::kInternal, "disk"));
  for (int i = 0; i < 1000; ++i) {
    calls.Add(Call(absl::StatusCode::kResourceExhausted, std::to_string(i)));
  }
  EXPECT_THAT(ErrorsOf(calls), ElementsAre("999", "998", "997", "disk"));
  // Once no code has more places than the others, the oldest one goes.
  for (const char* error : {"a", "b", "c"}) calls.Add(Call(absl::StatusCode::kNotFound, error));
  EXPECT_THAT(ErrorsOf(calls), ElementsAre("c", "b", "999", "disk"));
}

}  // namespace
}  // namespace sru::server::telemetry
