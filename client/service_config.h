// The gRPC service config that this library uses and that other languages can use unchanged:
// service_config.json, compiled in.
//
//   round_robin         spreads calls over all addresses of the target's name; a call goes to a
//                       server that is connected and whose health service says that it serves
//   outlier_detection   leaves an address alone for 10 s, and longer each time, up to 2 minutes, if
//                       all of at least 10 calls that ended there within 2 s failed: a server that
//                       is connected and does not work. It leaves one address in ten (at least one)
//                       and never the last one, and asks for 10 failures because a server that
//                       refuses two calls of three under overload must keep its share. A gRPC
//                       library that lacks the policy takes the next one of the list, round_robin
//   healthCheckConfig   the client watches grpc.health.v1, so that a server that drains gets no new
//                       call. gRPC's libraries for C++ and Python have the watcher built in; Go
//                       needs `import _ "google.golang.org/grpc/health"`
//   retryPolicy         for InferenceService and the health service. UNAVAILABLE: no connection, a
//                       connection that broke, a server that drains. CANCELLED from a server:
//                       gRPC's answer to a call that a proxy hands to a server at the moment it
//                       closes (a call that its own caller cancels is over and not retried). Every
//                       method of InferenceService is a pure function of its request and the loaded
//                       weights, so repeating a call does no harm. RESOURCE_EXHAUSTED is not
//                       retried: an overloaded server must not be asked again at once
//   retryThrottling     if more than about half of the attempts fail, there are no retries, which
//                       would only add load to servers that are down
#ifndef SRU_CLIENT_SERVICE_CONFIG_H_
#define SRU_CLIENT_SERVICE_CONFIG_H_

#include <string>

#include "absl/time/time.h"

namespace sru::client {

// The file, unchanged.
const std::string& ServiceConfigJson();

// The file with another retry policy: 2 <= max_attempts <= 5, or 1 for none.
std::string ServiceConfigJson(int max_attempts, absl::Duration initial_backoff,
                              absl::Duration max_backoff);

}  // namespace sru::client

#endif  // SRU_CLIENT_SERVICE_CONFIG_H_
