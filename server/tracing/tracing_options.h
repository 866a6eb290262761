// What the standard variables OTEL_* say about spans
// (https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/). The server
// makes no spans unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT names a
// collector.
#ifndef SRU_SERVER_TRACING_TRACING_OPTIONS_H_
#define SRU_SERVER_TRACING_TRACING_OPTIONS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace sru::server::tracing {

struct Endpoint {
  std::string text;  // as it was given
  bool tls = false;
  std::string authority;  // HOST:PORT
  std::string host;       // without the brackets of an IPv6 address
  std::string port;
  std::string path;  // of HTTP: "/v1/traces"
};

struct TracingOptions {
  Endpoint endpoint;
  bool grpc = false;  // else HTTP with protobuf
  std::vector<std::pair<std::string, std::string>> headers;
  std::vector<std::pair<std::string, std::string>> resource;  // with service.name
  absl::Duration timeout = absl::Seconds(10);                 // of one attempt
  bool parent_based = true;  // a call with a parent is sampled if that is
  double ratio = 1;          // of the others, by their trace ids
  int64_t max_queue_spans = 2048;
  int64_t max_batch_spans = 512;
  absl::Duration max_delay = absl::Seconds(5);

  bool enabled() const { return !endpoint.text.empty(); }
};

// From the environment. kInvalidArgument names the variable, what was expected and what was found.
absl::StatusOr<TracingOptions> ReadTracingOptions();

}  // namespace sru::server::tracing

#endif  // SRU_SERVER_TRACING_TRACING_OPTIONS_H_
