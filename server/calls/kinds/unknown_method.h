// Answers calls that do not begin, with metrics and a line in the access log: those of methods that a port does not have, with UNIMPLEMENTED, as
// gRPC would, but with a helpful text; and those that are refused by their headers.
#ifndef SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_
#define SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_

#include "server/callers/caller.h"
#include "server/calls/exchange.h"
#include "server/calls/method_info.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"

namespace sru::server::calls {

// Thread-safe.
CallHandler* StartUnknownMethod(Exchange* exchange, telemetry::Metrics* metrics,
                                telemetry::AccessLog* access_log);
CallHandler* StartRefusedCall(Exchange* exchange, MethodId method, const callers::Refusal& refusal,
                              telemetry::Metrics* metrics, telemetry::AccessLog* access_log);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_
