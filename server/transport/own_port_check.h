// Whether a TLS port of this server really answers: one connection from here, up to the end of its
// handshake. gRPC accepts connections without a word when it could not make use of the certificates
// and then lets every one of them hang, so the check is made before anybody is told to come.
#ifndef SRU_SERVER_TRANSPORT_OWN_PORT_CHECK_H_
#define SRU_SERVER_TRANSPORT_OWN_PORT_CHECK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace sru::server::transport {

// `host` and `port` as they are listened on; the addresses that stand for all of the machine's are
// called as 127.0.0.1. kUnavailable when the port takes a connection but does not end a handshake
// within `timeout`. OK also when this machine cannot connect at all, since others may. Shows no
// certificate: with mutual TLS the server sees a handshake without one. The process must ignore
// SIGPIPE. Thread-safe.
absl::Status CheckTlsPort(const std::string& host, int port, absl::Duration timeout);

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_OWN_PORT_CHECK_H_
