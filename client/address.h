// What the gRPC target in ConnectOptions::address says about the machine that is called. The
// functions are pure.
#ifndef SRU_CLIENT_ADDRESS_H_
#define SRU_CLIENT_ADDRESS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace sru::client {

struct HostPort {
  std::string host;  // a name or an address, without brackets
  std::string port;  // "https" if the target has none, as in gRPC
};

// The one host and port of "HOST:PORT", "dns:HOST:PORT", "dns:///HOST:PORT", "ipv4:A.B.C.D:PORT" or
// "ipv6:[ADDRESS]:PORT"; nothing for other targets, and for those with several addresses.
std::optional<HostPort> ParseHostPort(absl::string_view target);

// Whether everything that is sent to the target stays on this machine: true for "localhost",
// numeric loopback addresses and socket files; false for a name that only looks like one
// ("127.evil.example") and for a list with any other address.
bool StaysOnThisMachine(absl::string_view target);

}  // namespace sru::client

#endif  // SRU_CLIENT_ADDRESS_H_
