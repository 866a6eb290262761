#include "server/rpc/end_call.h"

#include <utility>

#include "server/rpc/grpc_status.h"

namespace sru::server::rpc {
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

grpc::Status EndCall(telemetry::Metrics* metrics, telemetry::AccessLog* access_log,
                     EndedCall ended) {
  const absl::Status& status = *ended.record.status;
  if (ended.method.has_value()) ended.record.method = telemetry::MethodName(*ended.method);
  Count(metrics, ended);
  access_log->End(ended.call, std::move(ended.request_id), ended.record);
  return ToGrpcStatus(status, ended.retry_after);
}

}  // namespace sru::server::rpc
