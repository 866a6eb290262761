#include "bench/loopback.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/host_port.h"
#include "base/status.h"

namespace sru::bench {
absl::StatusOr<std::vector<SocketAddress>> ResolveLoopback(const std::string& address) {
  absl::string_view path = address;
  if (absl::ConsumePrefix(&path, "unix:")) {
    sockaddr_un local = {};
    local.sun_family = AF_UNIX;
    if (path.empty() || path.size() >= sizeof(local.sun_path)) {
      return InvalidArgument("address: expected a path of 1 to ", sizeof(local.sun_path) - 1,
                             " bytes after unix:, found ", path.size());
    }
    std::memcpy(local.sun_path, path.data(), path.size());
    return std::vector<SocketAddress>{
        SocketAddress(reinterpret_cast<const char*>(&local), sizeof(local))};
  }
  const auto parts = SplitHostPort(address);
  int port = 0;
  if (!parts || parts->host.empty() || !parts->port || !absl::SimpleAtoi(*parts->port, &port) ||
      port < 1 || port > 65535) {
    return InvalidArgument("address: expected HOST:PORT on this machine, found '", address, "'");
  }
  const std::string host(parts->host);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return InvalidArgument("address: cannot resolve '", host, "': ", gai_strerror(error));
  }
  std::vector<SocketAddress> addresses;
  bool all_loopback = found != nullptr;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    char number[INET6_ADDRSTRLEN];
    all_loopback = all_loopback &&
                   getnameinfo(entry->ai_addr, entry->ai_addrlen, number, sizeof(number), nullptr,
                               0, NI_NUMERICHOST) == 0 &&
                   IsLoopback(number);
    addresses.emplace_back(reinterpret_cast<const char*>(entry->ai_addr), entry->ai_addrlen);
  }
  freeaddrinfo(found);
  if (!all_loopback) {
    return InvalidArgument(
        "address: '", host,
        "' is not this machine. This tool makes overload on purpose and talks to "
        "loopback addresses only: run it on the server's machine, with "
        "--address=localhost:PORT");
  }
  return addresses;
}

}  // namespace sru::bench
