// Takes gRPC's own log over, for the whole process: its lines get this server's format, and those
// that tell of failed TLS handshakes are counted. gRPC has no other way to learn of the latter.
#ifndef SRU_SERVER_TRANSPORT_GRPC_LOG_H_
#define SRU_SERVER_TRANSPORT_GRPC_LOG_H_

#include <functional>

#include "absl/strings/string_view.h"
#include "server/transport/security_metrics.h"

namespace sru::server {

// Lines appear as gRPC's environment variable GRPC_VERBOSITY says when this is called first.
// Thread-safe.
void TakeOverGrpcLog();

// Gets each failed handshake, with OpenSSL's words; null = nobody. After the call returns the
// earlier observer runs no more. Thread-safe.
using HandshakeObserver = std::function<void(HandshakeFailure, absl::string_view detail)>;
void SetHandshakeObserver(HandshakeObserver observer);

// What went wrong, by OpenSSL's words. Pure.
HandshakeFailure ClassifyHandshakeFailure(absl::string_view detail);

}  // namespace sru::server

#endif  // SRU_SERVER_TRANSPORT_GRPC_LOG_H_
