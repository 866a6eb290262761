#include "server/tracing/tracer.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "google/protobuf/arena.h"
#include "server/base/log.h"
#include "server/base/retry.h"
#include "server/telemetry/trace_context.h"

namespace sru::server::tracing {
namespace {

constexpr size_t kMostTraceState = 512;  // a caller's longer one is dropped, as the standard allows
constexpr size_t kMostErrorLength = 300;

uint64_t ReadHex(absl::string_view digits) {
  uint64_t value = 0;
  static_cast<void>(absl::SimpleHexAtoi(digits, &value));
  return value;
}

bool IsPrintable(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// "10.0.0.1" of "ipv4:10.0.0.1:4711", "::1" of "ipv6:[::1]:4711".
std::string ClientAddress(const std::string& peer) {
  absl::string_view address = telemetry::AccessLog::AddressOf(peer);
  if (absl::ConsumePrefix(&address, "ipv4:")) return std::string(address);
  if (absl::ConsumePrefix(&address, "ipv6:[")) absl::ConsumeSuffix(&address, "]");
  return std::string(address);
}

// What is the server's fault or lack, by the conventions for servers of calls; only this marks a
// span as an error, since the message of any other may quote the request.
bool IsServersError(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kUnknown:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kUnimplemented:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDataLoss:
      return true;
    default:
      return false;
  }
}

}  // namespace

uint64_t RandomId() {
  // SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
  thread_local uint64_t state = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  uint64_t mixed = state += 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  mixed ^= mixed >> 31;
  return mixed == 0 ? 1 : mixed;
}

Tracer::Tracer(const TracingOptions& options, const Clock* clock, Sender sender)
    : options_(options),
      clock_(*clock),
      sampled_below_(static_cast<uint64_t>(std::ldexp(options.ratio, 63))),
      send_(sender != nullptr ? std::move(sender) : MakeSender(options_)),
      writer_(options_, clock),
      thread_([this] { Run(); }) {}

std::unique_ptr<CallTrace> Tracer::Begin(const CallOrigin& call, absl::Time now) {
  const std::optional<telemetry::TraceContext> parent =
      telemetry::ParseTraceparent(call.FindHeader(telemetry::kTraceparentHeader));
  const uint64_t low = parent.has_value() ? ReadHex(parent->trace_id.substr(16)) : RandomId();
  const bool sampled =
      parent.has_value() && options_.parent_based ? parent->sampled : low >> 1 < sampled_below_;
  if (!sampled) return nullptr;
  auto trace = std::make_unique<CallTrace>();
  trace->tracer = this;
  trace->trace_id = {parent.has_value() ? ReadHex(parent->trace_id.substr(0, 16)) : RandomId(),
                     low};
  trace->span_id = RandomId();
  trace->begin = now;
  if (parent.has_value()) {
    trace->parent_id = ReadHex(parent->parent_id);
    const absl::string_view state = call.FindHeader("tracestate");
    if (state.size() <= kMostTraceState && IsPrintable(state)) {
      trace->trace_state = std::string(state);
    }
  }
  return trace;
}

void Tracer::End(std::unique_ptr<CallTrace> trace, const CallOrigin& call, absl::string_view method,
                 absl::string_view request_id, const telemetry::CallRecord& record) {
  trace->end = clock_.Now();
  trace->method = std::string(method);
  const auto [http_method, http_route] = call.http_route();
  trace->http_method = std::string(http_method);
  trace->http_route = std::string(http_route);
  trace->code = record.status->code();
  if (IsServersError(trace->code)) {
    trace->error = std::string(record.status->message().substr(0, kMostErrorLength));
  }
  trace->request_id = std::string(request_id);
  trace->caller = std::string(record.caller);
  trace->client_address = ClientAddress(call.peer());
  trace->model = std::string(record.model);
  trace->version = record.version;
  trace->sequences = record.sequences;
  trace->tokens = record.tokens;
  if (trace->stages.empty() && record.times.has_value() &&
      record.times->tokenize > absl::ZeroDuration()) {
    trace->OnStages({trace->begin, *record.times, trace->computed, trace->batch});
    trace->stages.back().times.total = trace->end - trace->begin;
  }
  const int64_t spans = trace->num_spans();
  bool wakes = false;
  {
    const MutexLock lock(&mutex_);
    if (stopping_ || queued_spans_ + spans > options_.max_queue_spans) {
      (stopping_ ? counts_.dropped_shutdown : counts_.dropped_queue_full) += spans;
      return;
    }
    wakes = queued_spans_ < options_.max_batch_spans &&
            queued_spans_ + spans >= options_.max_batch_spans;
    queued_spans_ += spans;
    queue_.push_back(std::move(trace));
  }
  if (wakes) changed_.Signal();
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

void Tracer::Run() {
  absl::Time next = clock_.Now() + options_.max_delay;
  while (true) {
    std::vector<std::unique_ptr<CallTrace>> calls;
    {
      const MutexLock lock(&mutex_);
      while (!stopping_ && queued_spans_ < options_.max_batch_spans && clock_.Now() < next) {
        changed_.WaitFor(&mutex_, next - clock_.Now());
      }
      int64_t spans = 0;
      size_t count = 0;
      while (count < queue_.size() && spans < options_.max_batch_spans) {
        spans += queue_[count++]->num_spans();
      }
      std::move(queue_.begin(), queue_.begin() + count, std::back_inserter(calls));
      queue_.erase(queue_.begin(), queue_.begin() + count);
      queued_spans_ -= spans;
      if (stopping_ && (calls.empty() || clock_.Now() >= stop_at_)) {
        counts_.dropped_shutdown += spans + queued_spans_;
        return;
      }
    }
    if (!calls.empty()) Export(calls);
    next = clock_.Now() + options_.max_delay;
  }
}

bool Tracer::Sleep(absl::Duration duration) {
  const absl::Time end = clock_.Now() + duration;
  const MutexLock lock(&mutex_);
  while (!stopping_ && clock_.Now() < end) changed_.WaitFor(&mutex_, end - clock_.Now());
  return !stopping_;
}

void Tracer::Export(const std::vector<std::unique_ptr<CallTrace>>& calls) {
  Sent sent;
  int64_t spans = 0;
  try {
    google::protobuf::Arena arena;
    auto& request =
        *google::protobuf::Arena::CreateMessage<opentelemetry::proto::ExportTraceServiceRequest>(
            &arena);
    writer_.Write(calls, &request);
    spans = request.resource_spans(0).scope_spans(0).spans_size();
    absl::Duration growing = absl::Seconds(1);
    for (int attempt = 1;; ++attempt, growing *= 2) {
      const absl::Time end = clock_.Now() + options_.timeout;
      sent = send_(request, [this, end] {
        const MutexLock lock(&mutex_);
        return std::min(end, stop_at_);
      });
      if (!absl::IsUnavailable(sent.status) || attempt == kMostAttempts) break;
      Note(sent.status);
      const absl::Duration wait = RetryAfterOf(sent.status).value_or(growing);
      if (!Sleep(std::min(wait, kMostWait))) break;
    }
  } catch (const std::exception& error) {  // memory, or a socket that the system did not give
    sent.status = absl::InternalError(error.what());
  }
  Note(sent.status);
  const int64_t taken = sent.status.ok() ? spans - std::min(spans, sent.rejected_spans) : 0;
  const MutexLock lock(&mutex_);
  counts_.exported += taken;
  counts_.dropped_collector += spans - taken;
}

void Tracer::Note(const absl::Status& status) {
  if (failing_ == !status.ok()) return;
  failing_ = !status.ok();
  Log(failing_ ? LogLevel::kWarning : LogLevel::kInfo,
      failing_ ? "spans cannot be exported; what does not fit into their queue is dropped"
               : "spans are exported again",
      {{"collector", options_.endpoint}, {"reason", status.message()}});
}

}  // namespace sru::server::tracing
