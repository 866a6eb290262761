#include "server/tracing/tracer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "base/build_info.h"
#include "google/protobuf/arena.h"
#include "opentelemetry/trace.pb.h"
#include "server/base/log.h"
#include "server/base/retry.h"
#include "server/telemetry/trace_context.h"

namespace sru::server::tracing {
namespace {

using opentelemetry::proto::ScopeSpans;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr size_t kMostTraceState = 512;  // a caller's longer one is dropped, as the standard allows

// The bytes of an ExportTraceServiceRequest.
std::string MakeRequest(const TracingOptions& options, const std::string& spans) {
  opentelemetry::proto::ExportTraceServiceRequest request;
  auto* const of_server = request.add_resource_spans();
  for (const auto& [key, value] : options.resource) {
    auto* const attribute = of_server->mutable_resource()->add_attributes();
    attribute->set_key(key);
    attribute->mutable_value()->set_string_value(value);
  }
  ScopeSpans scope;
  scope.mutable_scope()->set_name("sru_server");
  scope.mutable_scope()->set_version(BuildVersion());
  of_server->add_scope_spans(scope.SerializeAsString() + spans);
  return request.SerializeAsString();
}

}  // namespace

Tracer::Tracer(const TracingOptions& options, const Clock* clock, Sender sender)
    : options_(options),
      clock_(*clock),
      sampled_below_(static_cast<uint64_t>(std::ldexp(options.ratio, 63))),
      send_(sender != nullptr ? std::move(sender) : MakeSender(options_)),
      thread_([this] { Run(); }) {}

std::unique_ptr<CallTrace> Tracer::Begin(const CallOrigin& call, absl::Time now) {
  const std::optional<telemetry::TraceContext> parent =
      telemetry::ParseTraceparent(call.FindHeader(telemetry::kTraceparentHeader));
  uint64_t low = 0;
  if (!parent.has_value() || !absl::SimpleHexAtoi(parent->trace_id.substr(16), &low)) {
    low = RandomId();
  }
  const bool sampled =
      parent.has_value() && options_.parent_based ? parent->sampled : low >> 1 < sampled_below_;
  if (!sampled) return nullptr;
  auto trace = std::make_unique<CallTrace>();
  trace->tracer = this;
  trace->trace_id = HexOf(RandomId()) + HexOf(low);
  trace->span_id = HexOf(RandomId());
  trace->begin = now;
  if (!parent.has_value()) return trace;
  trace->trace_id = std::string(parent->trace_id);
  trace->parent_id = std::string(parent->parent_id);
  const absl::string_view state = call.FindHeader("tracestate");
  if (state.size() <= kMostTraceState &&
      std::all_of(state.begin(), state.end(), absl::ascii_isprint)) {
    trace->trace_state = std::string(state);
  }
  return trace;
}

void Tracer::End(CallTrace* trace, const CallOrigin& call, absl::string_view method,
                 absl::string_view request_id, const telemetry::CallRecord& record) {
  if (trace->stages.empty() && record.times.has_value() &&
      record.times->tokenize > absl::ZeroDuration()) {
    trace->OnStages({trace->begin, *record.times});
    trace->stages.back().times.total = clock_.Now() - trace->begin;
  }
  {
    // The call, and each time its stages and their batch.
    const int64_t most = 1 + 5 * static_cast<int64_t>(trace->stages.size());
    const MutexLock lock(&mutex_);
    if (stopping_ || queued_spans_ + most > options_.max_queue_spans) {
      (stopping_ ? counts_.dropped_shutdown : counts_.dropped_queue_full) += most;
      return;
    }
  }
  google::protobuf::Arena arena;  // for a hundred small parts
  auto& spans = *google::protobuf::Arena::CreateMessage<ScopeSpans>(&arena);
  MakeSpans(*trace, call, method, request_id, record, &spans);
  const MutexLock lock(&mutex_);
  queue_.emplace_back(spans.SerializeAsString(), spans.spans_size());
  queued_spans_ += spans.spans_size();
  if (queued_spans_ >= options_.max_batch_spans) changed_.Signal();
}

void Tracer::Stop(absl::Duration timeout) {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
    stop_at_ = std::min(stop_at_, clock_.Now() + timeout);
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

telemetry::SpanCounts Tracer::counts() const {
  const MutexLock lock(&mutex_);
  return counts_;
}

bool Tracer::WaitUntil(absl::Time end, int64_t spans) {
  while (!stopping_ && queued_spans_ < spans && clock_.Now() < end) {
    changed_.WaitFor(&mutex_, end - clock_.Now());
  }
  return !stopping_;
}

void Tracer::Run() {
  while (true) {
    std::string spans;
    int64_t count = 0;
    {
      const MutexLock lock(&mutex_);
      WaitUntil(clock_.Now() + options_.max_delay, options_.max_batch_spans);
      auto call = queue_.begin();
      for (; call != queue_.end() && count < options_.max_batch_spans; ++call) {
        spans += call->first;
        count += call->second;
      }
      queue_.erase(queue_.begin(), call);
      queued_spans_ -= count;
      if (stopping_ && (count == 0 || clock_.Now() >= stop_at_)) {
        counts_.dropped_shutdown += count + queued_spans_;
        return;
      }
    }
    if (count > 0) Export(spans, count);
  }
}

void Tracer::Export(const std::string& spans, int64_t count) {
  absl::StatusOr<int64_t> rejected(absl::UnknownError(""));
  try {
    const std::string request = MakeRequest(options_, spans);
    absl::Duration growing = absl::Seconds(1);
    for (int attempt = 1;; ++attempt, growing *= 2) {
      const absl::Time end = clock_.Now() + options_.timeout;
      rejected = send_(request, [this, end] {
        const MutexLock lock(&mutex_);
        return std::min(end, stop_at_);
      });
      if (!absl::IsUnavailable(rejected.status()) || attempt == kMostAttempts) break;
      Note(rejected.status());
      const absl::Duration wait = RetryAfterOf(rejected.status()).value_or(growing);
      const MutexLock lock(&mutex_);
      if (!WaitUntil(clock_.Now() + std::min(wait, kMostWait), kNever)) break;
    }
  } catch (const std::exception& error) {  // memory, or a socket that the system did not give
    rejected = absl::InternalError(error.what());
  }
  Note(rejected.status());
  const int64_t taken = rejected.ok() ? std::max(int64_t{0}, count - *rejected) : 0;
  const MutexLock lock(&mutex_);
  counts_.exported += taken;
  counts_.dropped_collector += count - taken;
}

void Tracer::Note(const absl::Status& status) {
  if (failing_ == !status.ok()) return;
  failing_ = !status.ok();
  Log(failing_ ? LogLevel::kWarning : LogLevel::kInfo,
      failing_ ? "spans cannot be exported; what does not fit into their queue is dropped"
               : "spans are exported again",
      {{"collector", options_.endpoint.text}, {"reason", status.message()}});
}

}  // namespace sru::server::tracing
