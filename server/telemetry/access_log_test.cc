#include "server/telemetry/access_log.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/base/rate_limit.h"
#include "tests/testing/fake_clock.h"

namespace sru::server::telemetry {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct FixedClock final : Clock {
  absl::Time Now() const override { return absl::FromUnixSeconds(1000); }
};

struct Caller final : CallOrigin {
  absl::string_view FindHeader(absl::string_view name) const override {
    return name == "traceparent" ? "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" : "";
  }
  std::string peer() const override { return "ipv4:10.0.0.1:4711"; }
};

TEST(AccessLogTest, AFailedCallHasItsCallerAndItsIds) {
  const RealClock clock;
  AccessLog log(AccessLogOptions{}, &clock);
  const absl::Status status = absl::NotFoundError("model: there is none");
  CallRecord record;
  record.method = "Classify";
  record.status = &status;
  record.caller = "search";
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(log.End(Caller(), "id-7", record), "id-7");
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("method=Classify code=NOT_FOUND"), HasSubstr("model: there is none"),
            HasSubstr("peer=ipv4:10.0.0.1:4711 "), HasSubstr("caller=search"),
            HasSubstr("request_id=id-7"), HasSubstr("trace_id=4bf92f3577b34da6a3ce929d0e0e4736")));
}

TEST(AccessLogTest, ASlowCallHasItsStagesAndItsBatch) {
  const RealClock clock;
  AccessLogOptions options;
  options.requests = LogRequests::kNone;
  options.slow = absl::Milliseconds(5);
  AccessLog log(options, &clock);
  const absl::Status ok;
  CallRecord record;
  record.method = "Translate";
  record.status = &ok;
  record.model = "ende";
  record.version = 3;
  record.sequences = 2;
  record.times.emplace();
  record.times->total = absl::Microseconds(4999);
  EXPECT_EQ(log.End(Caller(), "", record), "") << "it is fast";
  record.times->tokenize = absl::Milliseconds(1);
  batching::RequestTimes met;
  met.queue = absl::Milliseconds(2);
  met.compute = absl::Milliseconds(3);
  met.Met(7, 70);
  met.Met(5, 90);
  met.first_step = absl::Milliseconds(4);
  record.times->Take(met, absl::Now());
  record.times->total = absl::Milliseconds(10);
  ::testing::internal::CaptureStderr();
  const std::string id = log.End(Caller(), "", record);
  record.lasts_as_its_caller_wants = true;
  EXPECT_EQ(log.End(Caller(), "", record), "");
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  const std::string line = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(id, "");
  EXPECT_THAT(line, AllOf(HasSubstr("INFO  slow request method=Translate code=OK"),
                          HasSubstr("model=ende version=3 sequences=2"),
                          HasSubstr("tokenize_us=1000 queue_us=2000 compute_us=3000"),
                          HasSubstr("total_us=10000 rest_us=4000 batch_sequences=7 "
                                    "batch_tokens=90 steps=2 first_step_us=4000"),
                          HasSubstr("request_id=" + id)));
  ASSERT_EQ(log.slow_calls().size(), 1u);
  EXPECT_THAT(log.slow_calls()[0].line,
              AllOf(HasSubstr(absl::StrCat("\"request_id\":\"", id)), HasSubstr("\"steps\":2"),
                    HasSubstr("\"trace_id\":\"4bf92f3577b34da6a3ce929d0e0e4736")));
  EXPECT_TRUE(log.errors().empty());
}

TEST(AccessLogTest, ErrorsAreKeptWithoutContent) {
  const RealClock clock;
  AccessLogOptions options;
  options.requests = LogRequests::kNone;
  options.content = true;
  AccessLog log(options, &clock);
  const absl::Status status = absl::InvalidArgumentError("sequences[0].text: found 'private'");
  CallRecord record;
  record.method = "Classify";
  record.status = &status;
  log.End(Caller(), "id-7", record);
  log.OnHttpRefusal("/v1/nothing", 400, absl::InvalidArgumentError("unknown 'private'"), {}, "",
                    "");
  log.OnAuthenticationFailure("Encode", "there is no such token", {}, "", "");
  const std::vector<RecentCall> errors = log.errors();
  ASSERT_EQ(errors.size(), 3u);
  EXPECT_EQ(errors[0].code, absl::StatusCode::kUnauthenticated);
  EXPECT_THAT(errors[1].line,
              AllOf(HasSubstr("\"method\":\"/v1/nothing\""), HasSubstr("\"error\":\"unknown \"")));
  EXPECT_THAT(errors[2].line, AllOf(HasSubstr("\"error\":\"sequences[0].text\""),
                                    HasSubstr("\"request_id\":\"id-7\"")));
}

TEST(AccessLogTest, AFloodOfOneErrorIsKeptInPart) {
  FakeClock clock;
  AccessLogOptions options;
  options.requests = LogRequests::kNone;
  AccessLog log(options, &clock);
  CallRecord record;
  record.method = "Classify";
  const absl::Status full = absl::ResourceExhaustedError("the queue is full");
  record.status = &full;
  for (int i = 0; i < 1000; ++i) log.End(Caller(), absl::StrCat("id-", i), record);
  EXPECT_THAT(log.errors()[0].line, HasSubstr("id-19"));
  const absl::Status rare = absl::InternalError("a device failed");
  record.status = &rare;
  log.End(Caller(), "rare", record);
  EXPECT_THAT(log.errors()[0].line, HasSubstr("rare"));
  clock.Advance(absl::Seconds(1));
  record.status = &full;
  log.End(Caller(), "later", record);
  EXPECT_THAT(log.errors()[0].line, HasSubstr("later"));
  EXPECT_THAT(log.errors()[1].line, HasSubstr("rare"));
}

// The line of a request over HTTP that was refused for this reason.
std::string RefusalLine(const absl::Status& reason, bool content) {
  const RealClock clock;
  AccessLogOptions options;
  options.content = content;
  AccessLog log(options, &clock);
  CallHeaders headers;
  headers.request_id = "id-7";
  headers.user_agent = "curl/8";
  ::testing::internal::CaptureStderr();
  log.OnHttpRefusal("/v1/classify", 400, reason, headers, "10.0.0.1", "search");
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  return ::testing::internal::GetCapturedStderr();
}

TEST(AccessLogTest, ARefusalOverHttpHasALineWithoutTheRequest) {
  EXPECT_THAT(RefusalLine(absl::NotFoundError("there is nothing"), false),
              AllOf(HasSubstr("HTTP request refused method=/v1/classify http_status=400"),
                    HasSubstr("code=NOT_FOUND"), HasSubstr("there is nothing"),
                    HasSubstr("peer=10.0.0.1"), HasSubstr("caller=search"),
                    HasSubstr("user_agent=curl/8"), HasSubstr("request_id=id-7")));
  for (const std::string text : {"sequences[0].text: found 'private'", "unknown field 'private'"}) {
    const absl::Status reason = absl::InvalidArgumentError(text);
    EXPECT_THAT(RefusalLine(reason, false),
                AllOf(HasSubstr("code=INVALID_ARGUMENT"), Not(HasSubstr("private"))));
    EXPECT_THAT(RefusalLine(reason, true), HasSubstr("private"));
  }
}

// Who hangs up has done nothing that an operator should look into.
TEST(AccessLogTest, AHangUpIsNoWarning) {
  EXPECT_THAT(RefusalLine(absl::CancelledError("the caller has left"), false), HasSubstr(" INFO "));
  EXPECT_THAT(RefusalLine(absl::NotFoundError("there is nothing"), false), HasSubstr(" WARN "));
  const RealClock clock;
  AccessLog log(AccessLogOptions{}, &clock);
  const absl::Status cancelled = absl::CancelledError("the caller cancelled the call");
  CallRecord record;
  record.method = "Generate";
  record.status = &cancelled;
  ::testing::internal::CaptureStderr();
  log.End(Caller(), "", record);
  log.OnHandshakeFailure("closed_by_client", "", "ipv4:10.0.0.1:1");
  log.OnHandshakeFailure("not_tls", "wrong version number", "ipv4:10.0.0.2:1");
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr(" INFO  request method=Generate code=CANCELLED"),
                    HasSubstr(" INFO  TLS handshake failed reason=closed_by_client"),
                    HasSubstr(" WARN  TLS handshake failed reason=not_tls")));
}

// The line of a call that was refused for its token.
std::string TokenLine(absl::string_view peer, absl::string_view certificate) {
  const RealClock clock;
  AccessLog log(AccessLogOptions{}, &clock);
  CallHeaders headers;
  headers.request_id = "id-7";
  headers.authorization = "Bearer private";
  headers.user_agent = "curl/8";
  ::testing::internal::CaptureStderr();
  log.OnAuthenticationFailure("/v1/classify", "unknown", headers, peer, certificate);
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  return ::testing::internal::GetCapturedStderr();
}

TEST(AccessLogTest, ARefusedTokenHasThePeerIfItIsKnown) {
  const std::string start = "authentication failed method=/v1/classify code=UNAUTHENTICATED ";
  const std::string end = " user_agent=curl/8 request_id=id-7\n";
  EXPECT_THAT(TokenLine("10.0.0.1", ""), HasSubstr(start + "reason=unknown peer=10.0.0.1" + end));
  EXPECT_THAT(TokenLine("", "team"), HasSubstr(start + "reason=unknown certificate=team" + end));
}

// Guesses of tokens, from one address or from many, leave room for the lines of others.
TEST(AccessLogTest, GuessesDoNotDrownTheLinesOfOthers) {
  const FixedClock clock;
  AccessLogOptions options;
  options.max_lines_per_second = 40;
  AccessLog log(options, &clock);
  const absl::Status status = absl::NotFoundError("model: there is none");
  CallRecord record;
  record.method = "Classify";
  record.status = &status;
  const auto lines = [](const std::string& text, const std::string& part) {
    int count = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
      ++count;
    return count;
  };
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  ::testing::internal::CaptureStderr();
  // None of the strangers may use up the share of the caller at the end.
  std::vector<std::string> strangers;
  for (int i = 0; strangers.size() < 101; ++i) {
    const std::string address = absl::StrCat("ipv4:10.9.", i, ".1");
    if (!RateLimit::CountAsOne(address, "ipv4:10.0.0.1")) strangers.push_back(address);
  }
  for (int i = 0; i < 1000; ++i) {
    log.OnAuthenticationFailure("/v1/classify", "unknown", {}, strangers[0] + ":1", "");
  }
  for (int i = 0; i < 1000; ++i) {
    const std::string peer = absl::StrCat(strangers[1 + i % 100], ":", i);
    log.OnAuthenticationFailure("/v1/classify", "unknown", {}, peer, "");
    log.OnHttpRefusal("/", 404, status, {}, peer, "");
    log.OnHandshakeFailure("timeout", "", peer);
  }
  for (int i = 0; i < 1000; ++i) log.End(Caller(), "", record);
  EXPECT_TRUE(FlushLog(absl::Seconds(30)));
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(lines(text, "peer=" + strangers[0] + ":"), 5);
  EXPECT_EQ(lines(text, "peer=ipv4:10.9."), 10);
  EXPECT_EQ(lines(text, "method=Classify"), 20);
  EXPECT_EQ(log.suppressed_lines(), 5000 - 30);
}

}  // namespace
}  // namespace sru::server::telemetry
