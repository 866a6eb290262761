// Texts that name a host, with or without a port. Pure functions.
#ifndef SRU_BASE_HOST_PORT_H_
#define SRU_BASE_HOST_PORT_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace sru {

struct HostPort {
  absl::string_view host;                 // without brackets
  std::optional<absl::string_view> port;  // whatever follows the colon
  bool brackets = false;
};

// Cuts HOST, HOST:PORT, [HOST] and [HOST]:PORT. Without brackets, two colons are an IPv6 address
// without a port. Nullopt for a bracket that does not close, or is followed by something else.
std::optional<HostPort> SplitHostPort(absl::string_view text);

// Whether a host is "localhost" or a numeric loopback address, with no regard to the names that
// resolve to one: "127.evil.example" is a name like any other.
bool IsLoopback(const std::string& host);

}  // namespace sru

#endif  // SRU_BASE_HOST_PORT_H_
