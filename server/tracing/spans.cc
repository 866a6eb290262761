#include "server/tracing/spans.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/build_info.h"
#include "base/utf8.h"

namespace sru::server::tracing {
namespace {

using opentelemetry::proto::KeyValue;
using Attributes = google::protobuf::RepeatedPtrField<KeyValue>;

std::string Bytes(uint64_t id) {
  std::string bytes(sizeof(id), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(id >> (56 - 8 * i));
  return bytes;
}
std::string Bytes(const std::array<uint64_t, 2>& id) { return Bytes(id[0]) + Bytes(id[1]); }

void Set(Attributes* attributes, const char* key, absl::string_view value) {
  if (value.empty()) return;
  KeyValue* const added = attributes->Add();
  added->set_key(key);
  // A collector refuses a whole message because of one byte that is not UTF-8.
  value = value.substr(0, FindInvalidUtf8({value.data(), value.size()}));
  added->mutable_value()->set_string_value(value.data(), value.size());
}
void Set(Attributes* attributes, const char* key, int64_t value) {
  if (value == 0) return;
  KeyValue* const added = attributes->Add();
  added->set_key(key);
  added->mutable_value()->set_int_value(value);
}

void SetModel(const CallTrace& call, Attributes* attributes) {
  Set(attributes, "sru.model", call.model);
  Set(attributes, "sru.version", call.version);
}

}  // namespace

void SpanWriter::Write(const std::vector<std::unique_ptr<CallTrace>>& calls,
                       opentelemetry::proto::ExportTraceServiceRequest* request) {
  auto* const resource = request->add_resource_spans();
  Attributes* const attributes = resource->mutable_resource()->mutable_attributes();
  for (const auto& [key, value] : options_.resource) Set(attributes, key.c_str(), value);
  scope_ = resource->add_scope_spans();
  scope_->mutable_scope()->set_name("sru_server");
  scope_->mutable_scope()->set_version(BuildVersion());
  to_date_ = clock_.WallNow() - clock_.Now();
  for (const auto& call : calls) WriteCall(*call);
}

SpanWriter::Span* SpanWriter::Add(absl::string_view name, absl::Time start, absl::Time end) {
  Span* const span = scope_->add_spans();
  span->set_name(name.data(), name.size());
  span->set_kind(Span::SPAN_KIND_INTERNAL);
  span->set_flags(1);  // sampled
  span->set_start_time_unix_nano(Nanoseconds(start));
  span->set_end_time_unix_nano(Nanoseconds(std::max(start, end)));
  return span;
}

SpanWriter::Span* SpanWriter::AddChild(const CallTrace& call, absl::string_view name,
                                       absl::Time start, absl::Time end) {
  Span* const span = Add(name, start, end);
  span->set_trace_id(Bytes(call.trace_id));
  span->set_span_id(Bytes(RandomId()));
  span->set_trace_state(call.trace_state);
  span->set_parent_span_id(Bytes(call.span_id));
  return span;
}

void SpanWriter::WriteCall(const CallTrace& call) {
  Span* const span = AddChild(call, call.method, call.begin, call.end);
  span->set_kind(Span::SPAN_KIND_SERVER);
  span->set_span_id(Bytes(call.span_id));
  span->clear_parent_span_id();
  if (call.parent_id != 0) span->set_parent_span_id(Bytes(call.parent_id));
  Attributes* const attributes = span->mutable_attributes();
  const std::string code = absl::StatusCodeToString(call.code);
  Set(attributes, "rpc.system.name", call.http_route.empty() ? "grpc" : "");
  Set(attributes, "rpc.method", call.method);
  Set(attributes, "rpc.response.status_code", code);
  Set(attributes, "http.request.method", call.http_method);
  Set(attributes, "http.route", call.http_route);
  Set(attributes, "client.address", call.client_address);
  SetModel(call, attributes);
  Set(attributes, "sru.sequences", call.sequences);
  Set(attributes, "sru.tokens", call.tokens);
  Set(attributes, "sru.caller", call.caller);
  Set(attributes, "sru.request_id", call.request_id);
  if (call.code != absl::StatusCode::kOk) Set(attributes, "error.type", code);
  if (!call.error.empty()) {
    span->mutable_status()->set_code(opentelemetry::proto::Status::STATUS_CODE_ERROR);
    span->mutable_status()->set_message(
        call.error.substr(0, FindInvalidUtf8({call.error.data(), call.error.size()})));
  }
  for (const Stages& stages : call.stages) WriteStages(call, stages);
}

void SpanWriter::WriteStages(const CallTrace& call, const Stages& stages) {
  const telemetry::CallTimes& times = stages.times;
  absl::Time end = stages.start + times.tokenize;
  AddChild(call, "parse and tokenize", stages.start, end);
  if (stages.computed == absl::InfinitePast()) return;
  const bool was_computed = times.compute > absl::ZeroDuration();
  absl::Time start = end;
  end = was_computed ? start + times.queue : stages.computed;
  AddChild(call, "queue", start, end);
  if (!was_computed) return;
  // Between its steps a text may wait, so its computing takes longer than they do.
  const bool has_batch = stages.batch.number > 0;
  Span* const compute =
      AddChild(call, "compute", end, has_batch ? end + times.compute : stages.computed);
  if (has_batch) {
    opentelemetry::proto::Span::Link* const link = compute->add_links();
    link->set_trace_id(Bytes(BatchTrace(stages.batch.number)));
    link->set_span_id(Bytes(static_cast<uint64_t>(stages.batch.number)));
    WriteBatch(call, stages);
  } else {
    Set(compute->mutable_attributes(), "sru.compute_us", absl::ToInt64Microseconds(times.compute));
  }
  for (const CallTrace::Event& event : call.events) {
    auto* const added = compute->add_events();
    added->set_time_unix_nano(Nanoseconds(event.time));
    added->set_name(absl::StrCat(&event == call.events.data() ? "first " : "", call.progress_unit));
    Set(added->mutable_attributes(), "sru.count", event.count);
  }
  AddChild(call, "write", stages.computed, stages.start + times.total);
}

void SpanWriter::WriteBatch(const CallTrace& call, const Stages& stages) {
  const batching::BatchRef& batch = stages.batch;
  int64_t& written = written_batches_[static_cast<size_t>(batch.number) % written_batches_.size()];
  if (written == batch.number) return;
  written = batch.number;
  Span* const span = Add("batch", batch.start, batch.start + stages.times.compute);
  span->set_trace_id(Bytes(BatchTrace(batch.number)));
  span->set_span_id(Bytes(static_cast<uint64_t>(batch.number)));
  SetModel(call, span->mutable_attributes());
  Set(span->mutable_attributes(), "sru.sequences", int64_t{batch.sequences});
  Set(span->mutable_attributes(), "sru.tokens", int64_t{batch.tokens});
}

}  // namespace sru::server::tracing
