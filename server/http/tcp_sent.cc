#include "server/http/tcp_sent.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>

namespace sru::server::http {

bool ClientHasSent(int fd) {
  tcp_info info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;
  constexpr size_t kNeeded =
      offsetof(tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received);
  // A FIN counts as a byte.
  return size < kNeeded || info.tcpi_bytes_received > 1;
}

}  // namespace sru::server::http
