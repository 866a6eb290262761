// ConnectOptions: which server a Client calls, and how it reaches it.
#ifndef SRU_CLIENT_CONNECT_OPTIONS_H_
#define SRU_CLIENT_CONNECT_OPTIONS_H_

#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/time/time.h"

namespace sru::client {

// gRPC waits for whole milliseconds. With gRPC 1.83 a call whose wait before the next attempt
// rounds to zero never ends, not even at its deadline.
inline constexpr absl::Duration kMinBackoff = absl::Milliseconds(2);

struct ConnectOptions {
  // HOST:PORT, unix:PATH or any other gRPC target. Calls go in turn to all addresses of the target
  // whose servers are healthy: dns:///NAME:PORT with several addresses behind the name, or
  // ipv4:10.0.0.1:50051,10.0.0.2:50051 (service_config.h). The variables grpc_proxy, https_proxy
  // and http_proxy name a proxy, which calls to an address of this machine do not use.
  std::string address = "localhost:50051";

  // For calls that set none in CallOptions; absl::InfiniteDuration() = no deadline. It covers all
  // attempts of a call, and the server drops work that it cannot finish in time.
  absl::Duration deadline = absl::Seconds(10);

  // Attempts of a call that gets UNAVAILABLE (no connection, or a server that drains) or that a
  // server gives up as it closes, 1 to 5; 1 = no retry. LoadModel and UnloadModel are never
  // retried; the other methods only read, so repeating them does no harm.
  int max_attempts = 4;
  // The wait before the second attempt, at least kMinBackoff. It doubles each time, up to
  // max_backoff, and is jittered by a fifth.
  absl::Duration initial_backoff = absl::Milliseconds(100);
  absl::Duration max_backoff = absl::Seconds(2);

  // The largest answer that is accepted, in bytes. Token vectors of long texts are large.
  int max_message_bytes = 64 << 20;

  // TLS: `tls` or any of its files turns it on. The server must present a certificate of one of the
  // authorities in tls_ca, a PEM file (empty = those that the system trusts), for the host in
  // `address`, or for tls_server_name if that is given. The client presents tls_cert and tls_key,
  // PEM files, if the server asks for a certificate (mutual TLS).
  bool tls = false;
  std::string tls_ca;
  std::string tls_cert;
  std::string tls_key;
  std::string tls_server_name;

  // Whether calls go only to servers whose health service (grpc.health.v1) says that they serve.
  // Turn it off to ask about a server that is loading or draining, or that has no model: otherwise
  // the client does not connect to such a server.
  bool only_serving = true;

  // File with the token to send with each call, read again every 10 s. Without TLS the token is
  // sent only to an address of this machine, unless token_without_tls says that something else
  // encrypts.
  std::string token_file;
  std::string token;  // the token itself, in place of a file
  bool token_without_tls = false;

  // For calls that set none in CallOptions.
  std::string traceparent;

  // Further gRPC channel arguments by name. {"grpc.keepalive_time_ms", 30000} pings a silent server
  // after 30 s in place of 1.5 s; without an answer within 6 s the connection ends.
  std::vector<std::pair<std::string, std::variant<int, std::string>>> channel_args;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_CONNECT_OPTIONS_H_
