// How a call that the server makes within the process for a caller (a request of the HTTP port, of
// a ModelStreamInfer) tells the service who that is, for the access log: by a header of the call.
// Callers over the network can send that header too, so its value begins with a secret of this
// process, without which it is ignored. Thread-safe.
#ifndef SRU_SERVER_BASE_PASSED_PEER_H_
#define SRU_SERVER_BASE_PASSED_PEER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace sru::server {

inline constexpr char kPassedPeerHeader[] = "x-sru-passed-peer";

// A caller at `address` ("10.0.0.1", "::1") and `port` in gRPC's form: "ipv4:10.0.0.1:4711" or
// "ipv6:[::1]:4711".
std::string PeerAt(absl::string_view address, int port);

// The value of the header for a caller that gRPC calls `peer`.
std::string PassPeer(absl::string_view peer);

// The caller that PassPeer() of this process was given; empty if it did not make the value. The
// result is a part of `value`.
absl::string_view ParsePassedPeer(absl::string_view value);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_PASSED_PEER_H_
