// EndCall: the end of every call, of whatever service: it is counted, it gets its line in the
// access log, and its status becomes the one that gRPC sends. Thread-safe.
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

namespace sru::server {

struct EndedCall {
  grpc::ServerContextBase* call = nullptr;
  std::string request_id;                 // as AccessLog::Begin() gave it
  std::optional<Method> method;           // nothing: no service has the method
  ModelMetrics* model_metrics = nullptr;  // of the model that was called; null: the call named none
  // What the log says. `status` must be set; `method` only where the field above has none.
  CallRecord record;
  // When the caller should come back, if the call was refused.
  std::optional<absl::Duration> retry_after;
};

// Call it once, just before the reactor's Finish(), which takes the status. Throws nothing: a call
// for whose count or line there is no memory ends without them, and without memory for its message
// it ends with the code alone.
grpc::Status EndCall(Metrics* metrics, AccessLog* access_log, EndedCall ended);

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_END_CALL_H_
