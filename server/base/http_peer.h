// How the HTTP port tells the services, which it calls within the process, who calls: by a header
// of the call, for the access log. Callers over the network can send that header too, so its value
// begins with a secret of this process, without which it is ignored. Thread-safe.
#ifndef SRU_SERVER_BASE_HTTP_PEER_H_
#define SRU_SERVER_BASE_HTTP_PEER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace sru::server {

inline constexpr char kHttpPeerHeader[] = "x-sru-http-peer";

// The value of the header for a caller at `address` ("10.0.0.1", "::1") and `port`.
std::string MakeHttpPeer(absl::string_view address, int port);

// The caller in gRPC's form, "ipv4:10.0.0.1:4711" or "ipv6:[::1]:4711"; empty if MakeHttpPeer() of
// this process did not make the value. The result is a part of `value`.
absl::string_view ParseHttpPeer(absl::string_view value);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_HTTP_PEER_H_
