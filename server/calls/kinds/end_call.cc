#include "server/calls/kinds/end_call.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/callers/caller.h"
#include "server/telemetry/request_id.h"
#include "server/tracing/tracer.h"

namespace sru::server::calls {
namespace {

void Count(telemetry::Metrics* metrics, const EndedCall& ended) {
  const absl::StatusCode code = ended.record.status->code();
  if (!ended.method.has_value()) {
    metrics->OnUnknownMethod();
  } else if (ended.model_metrics != nullptr) {
    ended.model_metrics->OnCall(*ended.method, code,
                                ended.record.times.value_or(telemetry::CallTimes()),
                                ended.record.sequences);
  } else {
    metrics->OnCallWithoutModel(*ended.method, code);
  }
}

}  // namespace

CallEnd EndCall(telemetry::Metrics* metrics, telemetry::AccessLog* access_log, EndedCall ended) {
  const absl::Status& status = *ended.record.status;
  if (ended.method.has_value()) {
    const MethodInfo info = Describe(*ended.method);
    ended.record.method = info.name;
    ended.record.lasts_as_its_caller_wants = info.kind == MethodKind::kBidirectional;
  }
  Count(metrics, ended);
  if (callers::Caller* const caller = ended.origin->caller().get()) {
    caller->OnEnd(status, ended.used_tokens);
    ended.record.caller = caller->name();
  }
  CallEnd end;
  end.status = status;
  if (ended.trace != nullptr) {
    ended.record.trace_id = ended.trace->trace_id;
    ended.record.span_id = ended.trace->span_id;
  }
  std::string id = access_log->End(*ended.origin, std::move(ended.request_id), ended.record);
  if (ended.trace != nullptr) {
    const MethodInfo info = Describe(*ended.method);
    ended.trace->tracer->End(ended.trace.get(), *ended.origin,
                             absl::StrCat(info.service, "/", info.name), id, ended.record);
  }
  if (!id.empty()) {
    // Clients do not retry an error that comes with initial metadata.
    (status.ok() ? end.headers : end.trailers)
        .emplace_back(telemetry::kRequestIdHeader, std::move(id));
  }
  return end;
}

}  // namespace sru::server::calls
