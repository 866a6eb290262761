// Answers calls of methods that a port does not have: UNIMPLEMENTED, as gRPC would, but with a
// helpful text, a metric and a line in the access log.
#ifndef SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_
#define SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_

#include "server/calls/exchange.h"
#include "server/telemetry/access_log.h"
#include "server/telemetry/metrics.h"

namespace sru::server::calls {

// Thread-safe.
CallHandler* StartUnknownMethod(Exchange* exchange, telemetry::Metrics* metrics,
                                telemetry::AccessLog* access_log);

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_UNKNOWN_METHOD_H_
