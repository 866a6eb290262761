// What the gRPC target in ConnectOptions::address says of the machine that is called. Pure.
#ifndef SRU_CLIENT_ADDRESS_H_
#define SRU_CLIENT_ADDRESS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace sru::client {

struct HostPort {
  std::string host;  // a name or an address, without brackets
  std::string port;  // "https" where the target has none, as gRPC takes it
};

// The one host and port of "HOST:PORT", "dns:HOST:PORT", "dns:///HOST:PORT", "ipv4:A.B.C.D:PORT" or
// "ipv6:[ADDRESS]:PORT"; nothing for other targets, and for those with several addresses.
std::optional<HostPort> ParseHostPort(absl::string_view target);

// Whether all that is sent to the target stays on this machine: "localhost", loopback addresses
// written out, socket files. A name that only looks like one ("127.evil.example") does not, nor a
// list with any other address.
bool StaysOnThisMachine(absl::string_view target);

}  // namespace sru::client

#endif  // SRU_CLIENT_ADDRESS_H_
