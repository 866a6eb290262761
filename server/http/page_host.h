// By which names the pages for people may be opened.
//
// A web site can have its own name point to this server ("DNS rebinding"); to the browser what is
// served here is then that site's own, to be read and asked by its scripts. Only the header Host
// tells. So pages are shown under what a stranger cannot own: an IP address, localhost, a name
// without a dot (of the local network, of a container), and names that --status_page_host lists.
//
// Thread-safe.
#ifndef SRU_SERVER_HTTP_PAGE_HOST_H_
#define SRU_SERVER_HTTP_PAGE_HOST_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sru::server {

// What stands in a header Host.
struct PageHost {
  enum class Kind { kIpV4, kIpV6, kName };
  Kind kind = Kind::kName;
  std::string host;  // in lower case, without brackets and port

  bool is_loopback() const;  // localhost or a loopback address
};

// Takes HOST and HOST:PORT, where HOST is a name, an IPv4 address of four decimal numbers or an
// IPv6 address in brackets, and PORT is 0 to 65535. nullopt for all else, also for what other
// programs take for an address ("127.1", "0x7f000001") or cut somewhere ("localhost:80@example").
std::optional<PageHost> ParsePageHost(absl::string_view header);

// The value of --status_page_host: names (not addresses) with commas between them. kInvalidArgument
// names `flag`.
absl::StatusOr<std::vector<std::string>> ParsePageHostNames(absl::string_view flag,
                                                            absl::string_view text);

// Whether pages are shown to a request with this header Host; `names` are those of the flag.
bool IsAllowedPageHost(absl::string_view header, const std::vector<std::string>& names);

// What to tell one to whom they are not.
std::string WrongPageHost(absl::string_view header);

}  // namespace sru::server

#endif  // SRU_SERVER_HTTP_PAGE_HOST_H_
