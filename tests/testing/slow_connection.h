// A client of an HTTP port that takes its time, to test whom it holds up.
#ifndef SRU_TESTS_TESTING_SLOW_CONNECTION_H_
#define SRU_TESTS_TESTING_SLOW_CONNECTION_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

namespace sru::testing {

class SlowConnection {
 public:
  // Connects to 127.0.0.1:`port` from `source`, another loopback address, and sends `bytes`. With a
  // small `receive_buffer` the server soon cannot send any more to a client that does not read.
  explicit SlowConnection(int port, const std::string& bytes = "", int receive_buffer = 0,
                          const char* source = "127.0.0.1") {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in from{};
    from.sin_family = AF_INET;
    inet_pton(AF_INET, source, &from.sin_addr);
    static_cast<void>(bind(fd_, reinterpret_cast<sockaddr*>(&from), sizeof(from)));
    if (receive_buffer > 0) {
      setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    if (connected_ && !bytes.empty()) Send(bytes);
  }
  ~SlowConnection() { close(fd_); }
  SlowConnection(const SlowConnection&) = delete;
  SlowConnection& operator=(const SlowConnection&) = delete;

  bool connected() const { return connected_; }

  // Sends what the system takes at once. Returns false if the server has closed the connection.
  bool Send(const std::string& bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ||
           errno == EAGAIN;
  }

  // Sends `bytes` again and again, every 20 ms, until the server closes or resets the connection,
  // and returns how long that took; `limit` if it did not.
  std::chrono::milliseconds TimeUntilClosed(std::chrono::milliseconds limit,
                                            const std::string& bytes = "") {
    const auto start = std::chrono::steady_clock::now();
    const auto passed = [start] {
      return std::chrono::duration_cast<std::chrono::milliseconds>(
          std::chrono::steady_clock::now() - start);
    };
    while (passed() < limit) {
      if (!bytes.empty() && !Send(bytes)) return passed();
      pollfd ready{fd_, static_cast<short>(reads_ ? POLLIN | POLLRDHUP : POLLRDHUP), 0};
      if (poll(&ready, 1, 20) <= 0) continue;
      if ((ready.revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0) return passed();
      char ignored[4096];
      if (recv(fd_, ignored, sizeof(ignored), MSG_DONTWAIT) == 0) return passed();
    }
    return limit;
  }

  // Says that nothing more will be sent.
  void EndSending() { shutdown(fd_, SHUT_WR); }

  // Stops reading what the server sends.
  void StopReading() { reads_ = false; }

  // Returns what has arrived.
  std::string ReadSome() {
    char buffer[4096];
    const ssize_t count = recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    return std::string(buffer, count > 0 ? static_cast<size_t>(count) : 0);
  }

  // Returns what the server sends until it closes the connection, or until 10 s without a byte.
  std::string ReadAll() {
    timeval timeout{};
    timeout.tv_sec = 10;
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    std::string all;
    char buffer[4096];
    ssize_t count = 0;
    while ((count = recv(fd_, buffer, sizeof(buffer), 0)) > 0) all.append(buffer, count);
    return all;
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
  bool reads_ = true;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_SLOW_CONNECTION_H_
