#include "server/transport/listening_sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace sru::server::transport {
namespace {

// A client that does not fit has to ask again after a second; one that fits waits behind the
// others. The kernel's own bound is this by default.
constexpr int kBacklog = 4096;
// How long unacknowledged data may be under way, as gRPC sets it with our keepalive timeout.
constexpr int kUserTimeoutMs = 20000;

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// A listening socket, or -1 with errno. Connections inherit its options.
int ListenOn(const sockaddr* address, socklen_t size, bool dual_stack) {
  const int fd =
      socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (fd < 0) return -1;
  SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
  if (address->sa_family == AF_INET6) SetOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, dual_stack ? 0 : 1);
  if (bind(fd, address, size) == 0 && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

// Whether somebody listens on the socket of this name.
bool IsServed(const sockaddr_un& name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return true;
  const bool refused = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0 &&
                       errno == ECONNREFUSED;
  close(fd);
  return !refused;
}

// A listening socket, or -1 with errno.
int ListenOnFile(absl::string_view path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(name.sun_path)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  std::memcpy(name.sun_path, path.data(), path.size());
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const auto try_bind = [&] {
    return bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0;
  };
  bool bound = try_bind();
  if (!bound && errno == EADDRINUSE) {
    struct stat file;
    if (lstat(name.sun_path, &file) == 0 && !S_ISSOCK(file.st_mode)) {
      errno = ENOTSOCK;
    } else if (!IsServed(name)) {
      unlink(name.sun_path);
      bound = try_bind();
    } else {
      errno = EADDRINUSE;
    }
  }
  if (bound && listen(fd, kBacklog) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

}  // namespace

std::string SystemErrorText() { return std::generic_category().message(errno); }

std::string PeerName(const sockaddr_storage& address) {
  if (address.ss_family == AF_UNIX) return "unix:";
  char text[INET6_ADDRSTRLEN] = "";
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port));
  }
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  const std::string scope = v6.sin6_scope_id == 0 ? "" : absl::StrCat("%25", v6.sin6_scope_id);
  return absl::StrCat("ipv6:%5B", text, scope, "%5D:", ntohs(v6.sin6_port));
}

bool IsAboutConnection(int error) {
  switch (error) {
    case ECONNABORTED:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENETDOWN:
    case ENETUNREACH:
    case ENONET:
    case ENOPROTOOPT:
    case EPERM:
    case EPROTO:
      return true;
    default:
      return false;
  }
}

absl::StatusOr<std::vector<int>> OpenListeningSockets(absl::string_view flag,
                                                      ListenAddress* address) {
  const auto error = [&](const std::string& why) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address->ToString(), " (--", flag, "): ", why));
  };
  std::vector<int> sockets;
  if (absl::string_view path = address->host; absl::ConsumePrefix(&path, kUnixPrefix)) {
    const int fd = ListenOnFile(path);
    if (fd < 0) return error(SystemErrorText());
    sockets.push_back(fd);
    return sockets;
  }
  if (address->host == "0.0.0.0" || address->host == "::") {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(address->port));
    const int fd =
        ListenOn(reinterpret_cast<const sockaddr*>(&any), sizeof(any), /*dual_stack=*/true);
    if (fd >= 0) sockets.push_back(fd);
    if (fd < 0 && errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) return error(SystemErrorText());
  }
  if (sockets.empty()) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int code =
        getaddrinfo(address->host.c_str(), std::to_string(address->port).c_str(), &hints, &found);
    if (code != 0) return error(gai_strerror(code));
    std::string why = "the name has no address";
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      // With port 0 every address gets the port that the first one got.
      const auto port =
          htons(static_cast<uint16_t>(sockets.empty() ? address->port : PortOf(sockets.front())));
      if (one->ai_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6*>(one->ai_addr)->sin6_port = port;
      } else if (one->ai_family == AF_INET) {
        reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_port = port;
      }
      const int fd = ListenOn(one->ai_addr, one->ai_addrlen, /*dual_stack=*/false);
      if (fd >= 0) {
        sockets.push_back(fd);
      } else {
        why = SystemErrorText();
      }
    }
    freeaddrinfo(found);
    if (sockets.empty()) return error(why);
  }
  address->port = PortOf(sockets.front());
  return sockets;
}

absl::Status CheckListening(const std::vector<ListenFlag>& flags) {
  absl::Status status;
  std::vector<int> open;
  for (auto flag = flags.begin(); flag != flags.end() && status.ok(); ++flag) {
    ListenAddress address = flag->second;
    const absl::StatusOr<std::vector<int>> sockets = OpenListeningSockets(flag->first, &address);
    if (sockets.ok()) {
      open.insert(open.end(), sockets->begin(), sockets->end());
      continue;
    }
    status = sockets.status();
    const auto twin = std::find_if(flags.begin(), flag, [&](const ListenFlag& other) {
      return other.second.port == address.port && address.port != 0;
    });
    if (twin != flag) {
      status = absl::UnavailableError(
          absl::StrCat(status.message(), "; --", twin->first, " is ", twin->second.ToString()));
    }
  }
  for (const int socket : open) close(socket);
  return status;
}

}  // namespace sru::server::transport
