#include "server/transport/listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/clock.h"
#include "server/base/log.h"
#include "server/transport/file_limit.h"

namespace sru::server::transport {
namespace {

// Who does not fit has to ask again after a second; who does waits behind the others.
constexpr int kBacklog = 1024;
// How long unacknowledged data may be under way, as gRPC sets it with our keepalive timeout.
constexpr int kUserTimeoutMs = 20000;
// How often connections are counted, at most, while there are too many.
constexpr absl::Duration kCountInterval = absl::Milliseconds(50);
// How long what waits at the sockets is left there when the system lacks something.
constexpr absl::Duration kFailureWait = absl::Milliseconds(50);

std::string ErrorText() { return std::generic_category().message(errno); }

void SetOption(int fd, int level, int name, int value) {
  setsockopt(fd, level, name, &value, sizeof(value));
}

// Errors of the connection that was to be accepted, which is gone then: accept(2), "Error
// handling".
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

// As gRPC writes it: a URI whose path is percent-encoded, link-local addresses with the number of
// their interface (fe80::1%4).
std::string PeerName(const sockaddr_storage& address) {
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

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Open(absl::string_view flag,
                                                         const ListenAddress& address,
                                                         Options options) {
  std::unique_ptr<Listener> listener(new Listener(address, std::move(options)));
  if (absl::Status status = listener->Bind(flag); !status.ok()) return status;
  return listener;
}

Listener::Listener(ListenAddress address, Options options)
    : address_(std::move(address)), options_(std::move(options)) {
  max_file_ = std::max(kReservedFiles + 1, RaiseFileLimit()) - kReservedFiles;
}

Listener::~Listener() {
  Stop();
  if (wake_ >= 0) close(wake_);
}

absl::Status Listener::Bind(absl::string_view flag) {
  const auto error = [&](const std::string& why) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address_.ToString(), " (--", flag, "): ", why));
  };
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0) return error(absl::StrCat("eventfd: ", ErrorText()));
  if (address_.host == "0.0.0.0" || address_.host == "::") {
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(address_.port));
    const int fd =
        ListenOn(reinterpret_cast<const sockaddr*>(&any), sizeof(any), /*dual_stack=*/true);
    if (fd >= 0) sockets_.push_back(fd);
    if (fd < 0 && errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL) return error(ErrorText());
  }
  if (sockets_.empty()) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int code =
        getaddrinfo(address_.host.c_str(), std::to_string(address_.port).c_str(), &hints, &found);
    if (code != 0) return error(gai_strerror(code));
    std::string why = "the name has no address";
    for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
      // With port 0 every address gets the port that the first one got.
      const auto port =
          htons(static_cast<uint16_t>(sockets_.empty() ? address_.port : PortOf(sockets_.front())));
      if (one->ai_family == AF_INET6) {
        reinterpret_cast<sockaddr_in6*>(one->ai_addr)->sin6_port = port;
      } else if (one->ai_family == AF_INET) {
        reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_port = port;
      }
      const int fd = ListenOn(one->ai_addr, one->ai_addrlen, /*dual_stack=*/false);
      if (fd >= 0) {
        sockets_.push_back(fd);
      } else {
        why = ErrorText();
      }
    }
    freeaddrinfo(found);
    if (sockets_.empty()) return error(why);
  }
  address_.port = PortOf(sockets_.front());
  return absl::OkStatus();
}

void Listener::AddTo(grpc::ServerBuilder* builder,
                     std::shared_ptr<grpc::ServerCredentials> credentials) {
  handover_ = ConnectionHandover::AddTo(builder, std::move(credentials), options_.ledger);
}

void Listener::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  if (thread_.joinable()) {
    stopping_ = true;
    eventfd_write(wake_, 1);
    thread_.join();
  }
  for (const int socket : sockets_) close(socket);
  sockets_.clear();
}

void Listener::NoteFailure(const char* what) {
  const std::string why = ErrorText();
  if (failures_.fetch_add(1, std::memory_order_relaxed) > 0) return;
  LogWarning(absl::StrCat("connections to ", address_.ToString(), " have to wait: ", what, ": ",
                          why, "; further failures are not logged"));
}

void Listener::Run() {
  std::vector<pollfd> polled = {{wake_, POLLIN, 0}};
  for (const int socket : sockets_) polled.push_back({socket, POLLIN, 0});
  const int wait_ms = static_cast<int>(absl::ToInt64Milliseconds(kFailureWait));
  bool failed = false;
  while (!stopping_) {
    // After a failure what waits at the sockets is left there for a moment.
    const nfds_t count = failed ? 1 : polled.size();
    if (poll(polled.data(), count, failed ? wait_ms : -1) < 0 && errno != EINTR) {
      NoteFailure("poll");
      absl::SleepFor(kFailureWait);
    }
    failed = false;
    for (const int socket : sockets_) {
      if (stopping_) return;
      if (!Accept(socket)) failed = true;
    }
  }
}

bool Listener::Accept(int socket) {
  for (;;) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    const int fd =
        accept4(socket, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || IsAboutConnection(errno)) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return true;
      NoteFailure("accept");
      return false;
    }
    struct stat status {};
    fstat(fd, &status);
    const std::string peer = PeerName(address);
    if (!Enter(fd, status.st_ino, peer)) {
      if (options_.on_refused != nullptr) options_.on_refused();  // before anybody can notice
      close(fd);
      continue;
    }
    if (options_.on_accepted != nullptr) options_.on_accepted(fd, status.st_ino, peer);
    handover_->HandOver(socket, fd, peer);
  }
}

bool Listener::IsFull(int fd) const {
  const auto limit = static_cast<size_t>(options_.max_connections);
  MutexLock lock(&mutex_);
  return limit > 0 && connections_.size() >= limit && connections_.count(fd) == 0;
}

bool Listener::Enter(int fd, ino_t inode, const std::string& peer) {
  if (fd >= max_file_) return false;
  if (IsFull(fd)) {
    const absl::Time now = SteadyNow();
    if (now < next_count_) return false;
    next_count_ = now + kCountInterval;
    ForgetClosed();
    if (IsFull(fd)) return false;
  }
  MutexLock lock(&mutex_);
  Connection& connection = connections_[fd];
  ForgetPeer(fd, connection.peer);
  connection = {inode, peer, 0};
  by_peer_[peer] = fd;
  return true;
}

void Listener::ForgetPeer(int fd, const std::string& peer) const {
  const auto it = by_peer_.find(peer);
  if (it != by_peer_.end() && it->second == fd) by_peer_.erase(it);
}

int Listener::FindConnection(const std::string& peer) const {
  MutexLock lock(&mutex_);
  const auto it = by_peer_.find(peer);
  return it == by_peer_.end() ? -1 : it->second;
}

void Listener::NoteDelivered(const std::string& peer, int64_t bytes) {
  MutexLock lock(&mutex_);
  const auto it = by_peer_.find(peer);
  if (it != by_peer_.end()) connections_[it->second].delivered += bytes;
}

std::optional<int64_t> Listener::DeliveredBytes(int fd, ino_t inode) const {
  MutexLock lock(&mutex_);
  const auto it = connections_.find(fd);
  if (it == connections_.end() || it->second.inode != inode) return std::nullopt;
  return it->second.delivered;
}

bool Listener::Close(const std::string& peer) {
  MutexLock lock(&mutex_);
  const auto it = by_peer_.find(peer);
  if (it == by_peer_.end()) return false;
  // A duplicate, so that what is compared is what is closed, whatever gRPC does meanwhile.
  const int fd = fcntl(it->second, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return false;
  struct stat status {};
  const bool same = fstat(fd, &status) == 0 && status.st_ino == connections_[it->second].inode;
  if (same) shutdown(fd, SHUT_RDWR);
  close(fd);
  return same;
}

void Listener::ForgetClosed() const {
  std::vector<std::pair<int, ino_t>> closed;
  {
    MutexLock lock(&mutex_);
    closed.reserve(connections_.size());
    for (const auto& [fd, connection] : connections_) closed.emplace_back(fd, connection.inode);
  }
  // Many calls of the system, so without the mutex, which every call of a client takes.
  closed.erase(std::remove_if(closed.begin(), closed.end(),
                              [](const std::pair<int, ino_t>& one) {
                                struct stat status {};
                                return fstat(one.first, &status) == 0 &&
                                       status.st_ino == one.second;
                              }),
               closed.end());
  MutexLock lock(&mutex_);
  for (const auto& [fd, inode] : closed) {
    const auto it = connections_.find(fd);
    if (it == connections_.end() || it->second.inode != inode) continue;  // another one by now
    ForgetPeer(fd, it->second.peer);
    connections_.erase(it);
  }
}

int64_t Listener::num_connections() const {
  ForgetClosed();
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(connections_.size());
}

}  // namespace sru::server::transport
