// AcceptedSocket: a connection that has been accepted, with who is at its other end.
#ifndef SRU_SERVER_TRANSPORT_ACCEPTED_SOCKET_H_
#define SRU_SERVER_TRANSPORT_ACCEPTED_SOCKET_H_

#include <sys/socket.h>

#include <array>
#include <string>
#include <utility>

namespace sru::server::transport {

// The key that a connection counts for: an IPv4 address, or the first half of an IPv6 address,
// since one machine has many that share it. All zeros for others.
using AddressKey = std::array<unsigned char, 16>;

// Owns the socket.
class AcceptedSocket {
 public:
  AcceptedSocket(int fd, const sockaddr_storage& address);
  AcceptedSocket(AcceptedSocket&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), peer_(std::move(other.peer_)), key_(other.key_) {}
  AcceptedSocket(int fd, std::string peer, const AddressKey& key)
      : fd_(fd), peer_(std::move(peer)), key_(key) {}
  AcceptedSocket& operator=(AcceptedSocket&&) = delete;
  ~AcceptedSocket();

  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  // In gRPC's form: "ipv4:10.0.0.1:4711".
  const std::string& peer() const { return peer_; }
  const AddressKey& key() const { return key_; }

 private:
  int fd_;
  std::string peer_;
  AddressKey key_{};
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_ACCEPTED_SOCKET_H_
