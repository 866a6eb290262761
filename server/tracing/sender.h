// Sender: brings spans to a collector, over HTTP (Beast) or gRPC, one message at a time. For one
// thread.
#ifndef SRU_SERVER_TRACING_SENDER_H_
#define SRU_SERVER_TRACING_SENDER_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/tracing/tracing_options.h"

namespace sru::server::tracing {

// When to give up, by SteadyNow(); it is asked every now and then.
using Deadline = std::function<absl::Time()>;

// Sends the bytes of an ExportTraceServiceRequest and returns how many of its spans the collector
// has rejected. kUnavailable: another try may help, after RetryAfterOf() (server/base/retry.h) if
// that is said.
using Sender =
    std::function<absl::StatusOr<int64_t>(const std::string& request, const Deadline& deadline)>;

// `options` must outlive it.
Sender MakeSender(const TracingOptions& options);

}  // namespace sru::server::tracing

#endif  // SRU_SERVER_TRACING_SENDER_H_
