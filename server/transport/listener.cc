#include "server/transport/listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "server/base/clock.h"
#include "server/transport/file_limit.h"
#include "server/transport/listening_sockets.h"

namespace sru::server::transport {
namespace {

// How often connections are counted, at most, while there are too many.
constexpr absl::Duration kCountInterval = absl::Milliseconds(50);

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

Listener::~Listener() { Stop(); }

absl::Status Listener::Bind(absl::string_view flag) {
  absl::StatusOr<std::vector<int>> sockets = OpenListeningSockets(flag, &address_);
  if (!sockets.ok()) return sockets.status();
  absl::StatusOr<std::unique_ptr<Acceptor>> acceptor =
      Acceptor::Create(*std::move(sockets), address_.ToString(),
                       [this](int socket, int fd, const sockaddr_storage& address) {
                         OnConnection(socket, fd, address);
                       });
  if (!acceptor.ok()) return acceptor.status();
  acceptor_ = *std::move(acceptor);
  return absl::OkStatus();
}

void Listener::AddTo(grpc::ServerBuilder* builder,
                     std::shared_ptr<grpc::ServerCredentials> credentials) {
  handover_ = ConnectionHandover::AddTo(builder, std::move(credentials), options_.ledger);
}

void Listener::Start() { acceptor_->Start(); }

void Listener::Stop() {
  if (acceptor_ != nullptr) acceptor_->Stop();
}

void Listener::OnConnection(int socket, int fd, const sockaddr_storage& address) {
  struct stat status {};
  fstat(fd, &status);
  const std::string peer = PeerName(address);
  if (!Enter(fd, status.st_ino, peer)) {
    if (options_.on_refused != nullptr) options_.on_refused();  // before anybody can notice
    close(fd);
    return;
  }
  if (options_.on_accepted != nullptr) options_.on_accepted(fd, status.st_ino, peer);
  handover_->HandOver(socket, fd, peer);
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
