// Answers calls that do not begin, with metrics and a line in the access log: those of methods that
// a port does not have, with UNIMPLEMENTED, as gRPC would, but with a helpful text; those that are
// refused by their headers; and those that fail before their message has come.
#ifndef SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_
#define SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_

#include "absl/status/status.h"
#include "server/calls/exchange.h"
#include "server/calls/method.h"
#include "server/calls/method_info.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"

namespace sru::server::calls {

// Thread-safe.
CallHandler* StartUnknownMethod(Exchange* exchange, telemetry::Metrics* metrics,
                                telemetry::AccessLog* access_log);
CallHandler* StartRefusedCall(Exchange* exchange, MethodId method, const absl::Status& refusal,
                              telemetry::Metrics* metrics, telemetry::AccessLog* access_log);
// For a call that its transport ends with `status`. `row` is its method's, null if there is none.
CallEnd EndFailedCall(const Exchange& exchange, const Method* row, const absl::Status& status,
                      telemetry::Metrics* metrics, telemetry::AccessLog* access_log);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_
