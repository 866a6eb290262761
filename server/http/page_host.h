// The host names under which the pages for people may be opened.
//
// A web site can have its own name point to this server ("DNS rebinding"); the browser then takes
// these pages for that site's own and lets its scripts read and call them. Only the header Host
// shows this. So pages are shown only under hosts that a stranger cannot own: an IP address,
// localhost, a name without a dot (of the local network, of a container), and the names in
// --status_page_host.
//
// Thread-safe.
#ifndef SRU_SERVER_HTTP_PAGE_HOST_H_
#define SRU_SERVER_HTTP_PAGE_HOST_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sru::server::http {

// The value of a header Host.
struct PageHost {
  enum class Kind { kIpV4, kIpV6, kName };
  Kind kind = Kind::kName;
  std::string host;  // in lower case, without brackets and port

  bool is_loopback() const;  // localhost or a loopback address
};

// Takes HOST and HOST:PORT, where HOST is a name, an IPv4 address of four decimal numbers or an
// IPv6 address in brackets, and PORT is 0 to 65535. Returns nullopt for everything else, also for
// texts that other programs accept as an address ("127.1", "0x7f000001") or cut somewhere
// ("localhost:80@example").
std::optional<PageHost> ParsePageHost(absl::string_view header);

// Parses the value of --status_page_host: names (not addresses) separated by commas.
// kInvalidArgument names `flag`.
absl::StatusOr<std::vector<std::string>> ParsePageHostNames(absl::string_view flag,
                                                            absl::string_view text);

// Whether pages are shown to a request with this header Host; `names` are those of the flag.
bool IsAllowedPageHost(absl::string_view header, const std::vector<std::string>& names);

// The message for a request to which they are not shown.
std::string WrongPageHost(absl::string_view header);

}  // namespace sru::server::http

#endif  // SRU_SERVER_HTTP_PAGE_HOST_H_
