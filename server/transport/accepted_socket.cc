#include "server/transport/accepted_socket.h"

#include <netinet/in.h>
#include <unistd.h>

#include <cstring>

#include "server/transport/listening_sockets.h"

namespace sru::server::transport {

AcceptedSocket::AcceptedSocket(int fd, const sockaddr_storage& address)
    : fd_(fd), peer_(PeerName(address)) {
  if (address.ss_family == AF_INET) {
    std::memcpy(key_.data() + 8, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, 4);
  } else if (address.ss_family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      std::memcpy(key_.data() + 8, &v6.s6_addr[12], 4);
    } else {
      std::memcpy(key_.data(), &v6, 8);
    }
  }
}

AcceptedSocket::~AcceptedSocket() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace sru::server::transport
