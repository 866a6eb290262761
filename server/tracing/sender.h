// Sender: brings spans to a collector, over HTTP (Beast) or gRPC, one message at a time. For one
// thread.
#ifndef SRU_SERVER_TRACING_SENDER_H_
#define SRU_SERVER_TRACING_SENDER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "opentelemetry/trace.pb.h"
#include "server/tracing/tracing_options.h"

namespace sru::server::tracing {

// What became of a message.
struct Sent {
  // kUnavailable: another try may help, after RetryAfterOf() (server/base/retry.h) if it is said.
  absl::Status status;
  int64_t rejected_spans = 0;  // of a message that was taken
};

// Gives up at the time that `deadline` returns, by SteadyNow(), which is asked every now and then.
using Deadline = std::function<absl::Time()>;
using Sender = std::function<Sent(const opentelemetry::proto::ExportTraceServiceRequest& request,
                                  const Deadline& deadline)>;

// `options` must outlive it.
Sender MakeSender(const TracingOptions& options);

}  // namespace sru::server::tracing

#endif  // SRU_SERVER_TRACING_SENDER_H_
