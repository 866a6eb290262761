// The spans of a call. The call is a SERVER span; its children are its stages.
//
// A batch is a span of its own, in a trace of its own, to which the span `compute` of each of its
// sampled calls links: so a backend shows which calls met in a batch, how large it was, and when it
// ran. Its ids follow from the number of the batch and a number of this process, so that a call
// knows them without asking; the first call of a batch brings the batch's span along.
#include <algorithm>
#include <random>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/utf8.h"
#include "opentelemetry/trace.pb.h"
#include "server/tracing/tracer.h"

namespace sru::server::tracing {
namespace {

using opentelemetry::proto::ScopeSpans;
using opentelemetry::proto::Span;

constexpr size_t kMostErrorLength = 300;

// What is the server's fault or lack, by the conventions for servers of calls; only this marks a
// span as an error, since the message of any other may quote the request.
constexpr absl::StatusCode kServersErrors[] = {
    absl::StatusCode::kUnknown,  absl::StatusCode::kDeadlineExceeded,
    absl::StatusCode::kInternal, absl::StatusCode::kUnimplemented,
    absl::StatusCode::kDataLoss, absl::StatusCode::kUnavailable};

// A collector refuses a whole message because of one byte that is not UTF-8.
std::string Valid(absl::string_view text) {
  return std::string(text.substr(0, FindInvalidUtf8({text.data(), text.size()})));
}

template <typename Message>
void Set(const char* key, absl::string_view value, Message* message) {
  if (value.empty()) return;
  auto* const added = message->add_attributes();
  added->set_key(key);
  added->mutable_value()->set_string_value(Valid(value));
}
template <typename Message>
void Set(const char* key, int64_t value, Message* message) {
  if (value == 0) return;
  auto* const added = message->add_attributes();
  added->set_key(key);
  added->mutable_value()->set_int_value(value);
}

struct Writer {
  absl::Duration to_date;  // from the clock's time
  ScopeSpans* spans;

  uint64_t Nanoseconds(absl::Time time) const {
    return static_cast<uint64_t>(absl::ToUnixNanos(time + to_date));
  }

  Span* Add(absl::string_view trace_id, absl::string_view name, absl::Time start, absl::Time end) {
    Span* const span = spans->add_spans();
    span->set_trace_id(absl::HexStringToBytes(trace_id));
    span->set_name(std::string(name));
    span->set_kind(Span::SPAN_KIND_INTERNAL);
    span->set_flags(1);  // sampled
    span->set_start_time_unix_nano(Nanoseconds(start));
    span->set_end_time_unix_nano(Nanoseconds(std::max(start, end)));
    return span;
  }

  Span* AddChild(const CallTrace& call, absl::string_view name, absl::Time start, absl::Time end) {
    Span* const span = Add(call.trace_id, name, start, end);
    span->set_span_id(absl::HexStringToBytes(HexOf(RandomId())));
    span->set_trace_state(call.trace_state);
    span->set_parent_span_id(absl::HexStringToBytes(call.span_id));
    return span;
  }

  // Returns the span of what computed the results; null: nothing did.
  Span* AddStages(const CallTrace& call, const CallTrace::Stages& stages) {
    const telemetry::CallTimes& times = stages.times;
    const absl::Time parsed = stages.start + times.tokenize;
    AddChild(call, "parse and tokenize", stages.start, parsed);
    if (times.computed == absl::InfinitePast()) return nullptr;
    const bool was_computed = times.compute > absl::ZeroDuration();
    const absl::Time dequeued = was_computed ? parsed + times.queue : times.computed;
    AddChild(call, "queue", parsed, dequeued);
    if (!was_computed) return nullptr;
    // Between its steps a text may wait, so its computing takes longer than they do.
    const bool has_steps = times.met.batch.number == 0;
    Span* const compute =
        AddChild(call, "compute", dequeued, has_steps ? times.computed : dequeued + times.compute);
    if (has_steps) Set("sru.compute_us", absl::ToInt64Microseconds(times.compute), compute);
    for (const CallTrace::Event& event : call.events) {
      auto* const added = compute->add_events();
      added->set_time_unix_nano(Nanoseconds(event.time));
      const bool is_first = &event == call.events.data();
      added->set_name(absl::StrCat(is_first ? "first " : "", call.progress_unit));
      Set("sru.count", event.count, added);
    }
    AddChild(call, "write", times.computed, stages.start + times.total);
    return compute;
  }
};

}  // namespace

uint64_t RandomId() {
  thread_local std::mt19937_64 generator = [] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64(seed);
  }();
  return std::max(generator(), uint64_t{1});
}

std::string HexOf(uint64_t id) { return absl::StrCat(absl::Hex(id, absl::kZeroPad16)); }

void Tracer::MakeSpans(const CallTrace& call, const CallOrigin& origin, absl::string_view method,
                       absl::string_view request_id, const telemetry::CallRecord& record,
                       ScopeSpans* spans) {
  Writer writer{clock_.WallNow() - clock_.Now(), spans};
  Span* const span = writer.AddChild(call, method, call.begin, clock_.Now());
  span->set_kind(Span::SPAN_KIND_SERVER);
  span->set_span_id(absl::HexStringToBytes(call.span_id));
  span->set_parent_span_id(absl::HexStringToBytes(call.parent_id));
  const auto [http_method, http_route] = origin.http_route();
  const std::string code = absl::StatusCodeToString(record.status->code());
  Set("rpc.system.name", http_route.empty() ? "grpc" : "", span);
  Set("rpc.method", method, span);
  Set("rpc.response.status_code", code, span);
  Set("http.request.method", http_method, span);
  Set("http.route", http_route, span);
  Set("client.address", AddressOfPeer(origin.peer()), span);
  Set("sru.model", record.model, span);
  Set("sru.version", record.version, span);
  Set("sru.sequences", record.sequences, span);
  Set("sru.tokens", record.tokens, span);
  Set("sru.caller", record.caller, span);
  Set("sru.request_id", request_id, span);
  if (!record.status->ok()) Set("error.type", code, span);
  if (absl::c_linear_search(kServersErrors, record.status->code())) {
    span->mutable_status()->set_code(opentelemetry::proto::Status::STATUS_CODE_ERROR);
    span->mutable_status()->set_message(
        Valid(record.status->message().substr(0, kMostErrorLength)));
  }
  for (const CallTrace::Stages& stages : call.stages) {
    Span* const compute = writer.AddStages(call, stages);
    const batching::BatchRef& batch = stages.times.met.batch;
    if (compute == nullptr || batch.number == 0) continue;
    const std::string id = HexOf(static_cast<uint64_t>(batch.number));
    auto* const link = compute->add_links();
    link->set_trace_id(absl::HexStringToBytes(process_ + id));
    link->set_span_id(absl::HexStringToBytes(id));
    auto& written = written_batches_[static_cast<size_t>(batch.number) % written_batches_.size()];
    if (written.exchange(batch.number) == batch.number) continue;
    Span* const of_batch =
        writer.Add(process_ + id, "batch", batch.start, batch.start + stages.times.compute);
    of_batch->set_span_id(link->span_id());
    Set("sru.model", record.model, of_batch);
    Set("sru.version", record.version, of_batch);
    Set("sru.sequences", int64_t{batch.sequences}, of_batch);
    Set("sru.tokens", int64_t{batch.tokens}, of_batch);
  }
}

}  // namespace sru::server::tracing
