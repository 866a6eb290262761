// EndCall: ends every call, whatever its service: counts it, writes its line in the access log, and
// gives the status that gRPC sends. Thread-safe.
//
//   EndedCall ended;
//   ended.call = context;
//   ...
//   reactor->Finish(EndCall(&metrics, &access_log, std::move(ended)));
#ifndef SRU_SERVER_RPC_END_CALL_H_
#define SRU_SERVER_RPC_END_CALL_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/status.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/method.h"
#include "server/telemetry/metrics.h"

namespace sru::server::rpc {

struct EndedCall {
  grpc::ServerContextBase* call = nullptr;
  std::string request_id;                   // from AccessLog::Begin()
  std::optional<telemetry::Method> method;  // empty: no service has the method
  telemetry::ModelMetrics* model_metrics =
      nullptr;  // of the model that was called; null: the call named none
  // For the log. `status` must be set; its `method` only if the field above is empty.
  telemetry::CallRecord record;
  // When the caller should come back, if the call was refused.
  std::optional<absl::Duration> retry_after;
};

// Call it once per call, just before the reactor's Finish(), and pass the status to that.
grpc::Status EndCall(telemetry::Metrics* metrics, telemetry::AccessLog* access_log,
                     EndedCall ended);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_END_CALL_H_
