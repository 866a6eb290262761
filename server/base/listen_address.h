// A place to listen on, as flags name it.
#ifndef SRU_SERVER_BASE_LISTEN_ADDRESS_H_
#define SRU_SERVER_BASE_LISTEN_ADDRESS_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sru::server {

// The host of a socket in the file system begins with this.
inline constexpr absl::string_view kUnixPrefix = "unix:";

// Port 0 lets the system choose.
struct ListenAddress {
  std::string host;  // without the brackets of an IPv6 address; or "unix:PATH", which has no port
  int port = 0;

  // "0.0.0.0:50051", "[::]:50051", "unix:/run/sru.sock".
  std::string ToString() const;
};

// Takes "HOST:PORT", "[IPV6]:PORT" and "unix:PATH"; kInvalidArgument names `flag`.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view flag, absl::string_view text);
// Likewise, of an address that may be left out: "" is none.
absl::StatusOr<std::optional<ListenAddress>> ParseOptionalListenAddress(absl::string_view flag,
                                                                        absl::string_view text);

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_LISTEN_ADDRESS_H_
