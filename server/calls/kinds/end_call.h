// EndCall: ends every call, whatever its method: counts it, writes its line in the access log,
// hands its span over, and gives what the transport sends. Thread-safe.
//
//   EndedCall ended(*exchange, AccessLog::Begin(*exchange), status);
//   ended.method = ...
//   exchange->Finish(EndCall(&metrics, &access_log, std::move(ended)));
#ifndef SRU_SERVER_CALLS_KINDS_END_CALL_H_
#define SRU_SERVER_CALLS_KINDS_END_CALL_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "server/base/call_origin.h"
#include "server/calls/exchange.h"
#include "server/calls/method_info.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"
#include "server/tracing/call_trace.h"

namespace sru::server::calls {

struct EndedCall {
  // `given_id` is from AccessLog::Begin().
  EndedCall(const CallOrigin& call, std::string given_id, const absl::Status& status)
      : origin(&call), request_id(std::move(given_id)) {
    record.status = &status;
  }

  const CallOrigin* origin;
  std::string request_id;
  std::optional<MethodId> method;  // empty: no service has the method
  telemetry::ModelMetrics* model_metrics =
      nullptr;  // of the model that was called; null: the call named none
  std::unique_ptr<tracing::CallTrace> trace;  // null: the call has no span
  // For the log. Its `method` must be set only if the field above is empty.
  telemetry::CallRecord record;  // its `caller` is the origin's
  int64_t used_tokens = 0;       // that the caller is charged for
};

// Call it once per call, just before Exchange::Finish(), and pass the result to that.
CallEnd EndCall(telemetry::Metrics* metrics, telemetry::AccessLog* access_log, EndedCall ended);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_END_CALL_H_
