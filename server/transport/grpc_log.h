// Takes gRPC's own log over, for the whole process: its lines get this server's format, and those
// that tell of failed TLS handshakes are counted. gRPC has no other way to learn of the latter.
#ifndef SRU_SERVER_TRANSPORT_GRPC_LOG_H_
#define SRU_SERVER_TRANSPORT_GRPC_LOG_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "server/transport/security_metrics.h"

namespace sru::server::transport {

// Lines appear as gRPC's environment variable GRPC_VERBOSITY says when this is called first.
// Thread-safe.
void TakeOverGrpcLog();

struct FailedHandshake {
  HandshakeFailure failure = HandshakeFailure::kOther;
  absl::string_view detail;  // OpenSSL's words, or ours
  absl::string_view peer;    // as gRPC writes it; empty where gRPC does not say
};

// Gets each failed handshake; null = nobody. After the call returns the earlier observer runs no
// more. A connection that is closed before its client has sent anything (the probe of a load
// balancer) is no handshake. While there is an observer gRPC makes all its lines, since it tells of
// some failures for debugging only; that is a few lines a connection, and none a call. Thread-safe.
// `find_connection` gives the socket of a connection by gRPC's name of its peer, or -1: a current
// gRPC names no socket in its lines. It must not log, and may be null.
using HandshakeObserver = std::function<void(const FailedHandshake&)>;
using ConnectionFinder = std::function<int(const std::string& peer)>;
void SetHandshakeObserver(HandshakeObserver observer, ConnectionFinder find_connection = nullptr);

// What went wrong, by OpenSSL's words. Pure.
HandshakeFailure ClassifyHandshakeFailure(absl::string_view detail);

// Whose connection ended in the middle of its handshake, by the line of 1.51 or of a current gRPC.
// Pure.
struct EndedHandshake {
  absl::string_view peer;
  int fd = -1;  // open until gRPC's line has been written; -1 if the line does not say
};
std::optional<EndedHandshake> ParseEndedHandshake(absl::string_view line);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_GRPC_LOG_H_
