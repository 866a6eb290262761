#include "server/tracing/tracer.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "opentelemetry/trace.pb.h"
#include "server/base/retry.h"
#include "tests/testing/notification.h"

namespace sru::server::tracing {
namespace {

using opentelemetry::proto::Span;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::Le;

constexpr char kSampled[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
constexpr char kUnsampled[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

struct Origin final : CallOrigin {
  absl::string_view FindHeader(absl::string_view name) const override {
    if (name == "traceparent") return traceparent;
    return name == "tracestate" ? absl::string_view(tracestate) : "";
  }
  std::string peer() const override { return "ipv4:10.0.0.1:4711"; }
  std::pair<absl::string_view, absl::string_view> http_route() const override { return route; }

  std::string traceparent;
  std::string tracestate;
  std::pair<absl::string_view, absl::string_view> route;
};

// What a collector gets.
class TracerTest : public ::testing::Test {
 protected:
  using Rejected = absl::StatusOr<int64_t>;

  void Start(TracingOptions options, std::function<Rejected(int attempt)> answer = nullptr) {
    options.endpoint.text = "http://collector";
    options.resource = {{"service.name", "test"}};
    tracer_ = std::make_unique<Tracer>(
        options, &clock_, [this, answer](const std::string& bytes, const Deadline& deadline) {
          opentelemetry::proto::ExportTraceServiceRequest request;
          opentelemetry::proto::ScopeSpans spans;
          EXPECT_TRUE(request.ParseFromString(bytes));
          EXPECT_TRUE(spans.ParseFromString(request.resource_spans(0).scope_spans(0)));
          EXPECT_EQ(spans.scope().name(), "sru_server");
          int attempt = 0;
          {
            const MutexLock lock(&mutex_);
            spans_.insert(spans_.end(), spans.spans().begin(), spans.spans().end());
            deadline_ = deadline();
            attempt = ++attempts_;
          }
          return answer == nullptr ? Rejected(0) : answer(attempt);
        });
  }

  std::unique_ptr<CallTrace> Begin() { return tracer_->Begin(origin_, clock_.Now()); }

  void End(std::unique_ptr<CallTrace> trace, const absl::Status& status = absl::OkStatus(),
           std::optional<telemetry::CallTimes> times = std::nullopt) {
    telemetry::CallRecord record;
    record.status = &status;
    record.caller = "alice";
    record.model = "trec";
    record.version = 3;
    record.sequences = 1;
    record.tokens = 7;
    record.times = times;
    tracer_->End(trace.get(), origin_, "sru.v1.InferenceService/Classify", "id-1", record);
  }

  // After Stop().
  std::vector<Span> Spans() {
    const MutexLock lock(&mutex_);
    return spans_;
  }

  static std::map<std::string, std::string> AttributesOf(const Span& span) {
    std::map<std::string, std::string> found;
    for (const auto& pair : span.attributes()) {
      found[pair.key()] = pair.value().value_case() == opentelemetry::proto::AnyValue::kStringValue
                              ? pair.value().string_value()
                              : absl::StrCat(pair.value().int_value());
    }
    return found;
  }

  RealClock clock_;
  Origin origin_;
  Mutex mutex_;
  std::vector<Span> spans_;
  absl::Time deadline_;
  int attempts_ = 0;
  std::unique_ptr<Tracer> tracer_;  // ends before what its thread uses
};

TEST_F(TracerTest, AParentDecidesAndElseTheRatio) {
  TracingOptions options;
  options.ratio = 0;
  Start(options);
  EXPECT_EQ(Begin(), nullptr);
  origin_.traceparent = kUnsampled;
  EXPECT_EQ(Begin(), nullptr);
  origin_.traceparent = kSampled;
  EXPECT_NE(Begin(), nullptr);
  origin_.traceparent = "nonsense";  // as if there were none
  EXPECT_EQ(Begin(), nullptr);
  options.ratio = 1;
  Start(options);
  EXPECT_NE(Begin(), nullptr);
  origin_.traceparent = kUnsampled;
  EXPECT_EQ(Begin(), nullptr);
  options.parent_based = false;
  Start(options);
  EXPECT_NE(Begin(), nullptr);
}

TEST_F(TracerTest, TheRatioIsThatOfTheCallsAndFollowsFromTheTraceId) {
  TracingOptions options;
  options.ratio = 0.25;
  options.parent_based = false;
  Start(options);
  int sampled = 0;
  for (int i = 0; i < 20000; ++i) sampled += Begin() != nullptr ? 1 : 0;
  EXPECT_THAT(sampled, AllOf(Ge(4500), Le(5500)));  // eight standard deviations
  // Below a quarter of all, and above it; other SDKs decide the same.
  origin_.traceparent = "00-4bf92f3577b34da63fffffffffffffff-00f067aa0ba902b7-00";
  EXPECT_NE(Begin(), nullptr);
  origin_.traceparent = "00-4bf92f3577b34da64000000000000000-00f067aa0ba902b7-01";
  EXPECT_EQ(Begin(), nullptr);
}

TEST_F(TracerTest, IdsDiffer) {
  Start({});
  const auto one = Begin();
  const auto other = Begin();
  EXPECT_NE(one->trace_id, other->trace_id);
  EXPECT_NE(one->span_id, other->span_id);
  EXPECT_EQ(one->parent_id, "");
  uint64_t of_thread = 0;
  std::thread([&] { of_thread = RandomId(); }).join();
  EXPECT_NE(of_thread, RandomId());
}

TEST_F(TracerTest, TheContextOfTheCallerIsKept) {
  Start({});
  origin_.traceparent = kSampled;
  origin_.tracestate = "vendor=1";
  End(Begin());
  origin_.tracestate = "not\xffprintable";
  End(Begin());
  origin_.tracestate = std::string(513, 'x');
  End(Begin());
  tracer_->Stop(absl::Seconds(5));
  const std::vector<Span> spans = Spans();
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(absl::BytesToHexString(spans[0].trace_id()), "4bf92f3577b34da6a3ce929d0e0e4736");
  EXPECT_EQ(absl::BytesToHexString(spans[0].parent_span_id()), "00f067aa0ba902b7");
  EXPECT_EQ(spans[0].trace_state(), "vendor=1");
  EXPECT_EQ(spans[1].trace_state(), "");
  EXPECT_EQ(spans[2].trace_state(), "");
}

TEST_F(TracerTest, ACallIsATreeOfItsStages) {
  Start({});
  auto trace = Begin();
  const absl::Time begin = trace->begin;
  telemetry::CallTimes times;
  times.tokenize = absl::Milliseconds(1);
  times.queue = absl::Milliseconds(2);
  times.compute = absl::Milliseconds(3);
  times.computed = begin + absl::Milliseconds(6);
  times.met.batch = {17, 4, 40, begin + absl::Milliseconds(3)};
  auto other = Begin();  // of the same batch
  End(std::move(trace), absl::OkStatus(), times);
  End(std::move(other), absl::OkStatus(), times);
  tracer_->Stop(absl::Seconds(5));
  const std::vector<Span> spans = Spans();
  std::vector<std::string> names;
  for (const Span& span : spans) names.push_back(span.name());
  ASSERT_THAT(names, ElementsAre("sru.v1.InferenceService/Classify", "parse and tokenize", "queue",
                                 "compute", "write", "batch", "sru.v1.InferenceService/Classify",
                                 "parse and tokenize", "queue", "compute", "write"));
  const Span& call = spans[0];
  EXPECT_EQ(call.kind(), Span::SPAN_KIND_SERVER);
  EXPECT_EQ(call.status().code(), opentelemetry::proto::Status::STATUS_CODE_UNSET);
  const std::map<std::string, std::string> expected = {
      {"rpc.system.name", "grpc"},    {"rpc.method", "sru.v1.InferenceService/Classify"},
      {"client.address", "10.0.0.1"}, {"rpc.response.status_code", "OK"},
      {"sru.model", "trec"},          {"sru.version", "3"},
      {"sru.sequences", "1"},         {"sru.tokens", "7"},
      {"sru.caller", "alice"},        {"sru.request_id", "id-1"}};
  EXPECT_EQ(AttributesOf(call), expected);
  uint64_t end = call.start_time_unix_nano();
  for (const int i : {1, 2, 3}) {
    EXPECT_EQ(spans[i].parent_span_id(), call.span_id());
    EXPECT_EQ(spans[i].trace_id(), call.trace_id());
    EXPECT_EQ(spans[i].start_time_unix_nano(), end);
    end += 1000000u * static_cast<uint64_t>(i);
    EXPECT_EQ(spans[i].end_time_unix_nano(), end);
  }
  const Span& batch = spans[5];
  EXPECT_EQ(batch.parent_span_id(), "");
  EXPECT_EQ(AttributesOf(batch)["sru.sequences"], "4");
  EXPECT_EQ(AttributesOf(batch)["sru.tokens"], "40");
  for (const int compute : {3, 9}) {
    ASSERT_EQ(spans[compute].links_size(), 1);
    EXPECT_EQ(spans[compute].links(0).span_id(), batch.span_id());
    EXPECT_EQ(spans[compute].links(0).trace_id(), batch.trace_id());
  }
}

TEST_F(TracerTest, ErrorsOfTheServerMarkTheSpanAndOthersQuoteNothing) {
  Start({});
  origin_.route = {"POST", "/v1/classify"};
  End(Begin(), absl::InternalError("broken \xff"));
  End(Begin(), absl::InvalidArgumentError("sequences[0].text: 'secret'"));
  tracer_->Stop(absl::Seconds(5));
  const std::vector<Span> spans = Spans();
  EXPECT_EQ(spans[0].status().code(), opentelemetry::proto::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(spans[0].status().message(), "broken ");
  EXPECT_EQ(AttributesOf(spans[0])["error.type"], "INTERNAL");
  EXPECT_EQ(AttributesOf(spans[0])["http.route"], "/v1/classify");
  EXPECT_EQ(AttributesOf(spans[0]).count("rpc.system.name"), 0u);
  EXPECT_EQ(AttributesOf(spans[1])["rpc.response.status_code"], "INVALID_ARGUMENT");
  EXPECT_EQ(spans[1].DebugString().find("secret"), std::string::npos);
}

TEST_F(TracerTest, ALongTextHasFewEvents) {
  Start({});
  auto trace = Begin();
  for (int i = 0; i < 2000000; ++i) trace->OnProgress("token", trace->begin, 1);
  EXPECT_EQ(trace->events[0].count, 1);
  EXPECT_EQ(trace->events[1].count, 16);
  EXPECT_EQ(trace->events[2].count, 32);
  EXPECT_GT(trace->events.back().count, 1000000);
  EXPECT_LE(trace->events.size(), CallTrace::kMostEvents);
}

TEST_F(TracerTest, AFullQueueDropsAndCounts) {
  TracingOptions options;
  options.max_queue_spans = 10;
  options.max_batch_spans = 1;
  testing::Notification taken;
  testing::Notification go_on;
  Start(options, [&](int attempt) {
    if (attempt == 1) {
      taken.Notify();
      go_on.Wait();
    }
    return Rejected(0);
  });
  End(Begin());
  taken.Wait();  // the thread is busy from now on
  for (int i = 0; i < 25; ++i) End(Begin());
  EXPECT_EQ(tracer_->counts().dropped_queue_full, 15);
  go_on.Notify();
  tracer_->Stop(absl::Seconds(5));
  EXPECT_EQ(tracer_->counts().exported, 11);
  End(Begin());
  EXPECT_EQ(tracer_->counts().dropped_shutdown, 1);
}

TEST_F(TracerTest, WhatIsRefusedForNowIsSentAgain) {
  TracingOptions options;
  options.max_batch_spans = 1;
  testing::Notification done;
  Start(options, [&](int attempt) {
    if (attempt < 3) {
      return Rejected(RetryAfter(absl::UnavailableError("429"), absl::Milliseconds(1)));
    }
    done.Notify();
    return Rejected(1);
  });
  End(Begin());
  done.Wait();
  tracer_->Stop(absl::Seconds(5));
  EXPECT_EQ(Spans().size(), 3u);
  EXPECT_EQ(tracer_->counts().exported, 0);
  EXPECT_EQ(tracer_->counts().dropped_collector, 1);
}

TEST_F(TracerTest, WhatIsRefusedForGoodIsDroppedAtOnce) {
  Start({}, [](int /*attempt*/) { return absl::FailedPreconditionError("HTTP 400"); });
  End(Begin());
  tracer_->Stop(absl::Seconds(5));
  EXPECT_EQ(Spans().size(), 1u);
  EXPECT_EQ(tracer_->counts().dropped_collector, 1);
}

TEST_F(TracerTest, TheEndWaitsForNoCollector) {
  TracingOptions options;
  options.max_batch_spans = 1;
  testing::Notification refused;
  Start(options, [&](int attempt) {
    if (attempt == 1) refused.Notify();
    return RetryAfter(absl::UnavailableError("503"), absl::Hours(1));
  });
  End(Begin());
  refused.Wait();
  const absl::Time before = clock_.Now();
  tracer_->Stop(absl::Milliseconds(1));
  EXPECT_LT(clock_.Now() - before, absl::Seconds(20));  // not kMostWait
  EXPECT_EQ(tracer_->counts().dropped_collector, 1);
}

}  // namespace
}  // namespace sru::server::tracing
