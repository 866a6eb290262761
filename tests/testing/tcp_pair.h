// Two ends of a TCP connection on loopback.
#ifndef SRU_TESTS_TESTING_TCP_PAIR_H_
#define SRU_TESTS_TESTING_TCP_PAIR_H_

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>

namespace sru::testing {

class TcpPair {
 public:
  // Ends the process if the machine has no loopback.
  TcpPair() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any_address = reinterpret_cast<sockaddr*>(&address);
    client_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, any_address, size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, any_address, &size) != 0 ||
        connect(client_, any_address, size) != 0) {
      std::abort();
    }
    server_ = accept(listener, nullptr, nullptr);
    if (server_ < 0) std::abort();
    close(listener);
  }
  ~TcpPair() {
    close(client_);
    CloseServer();
  }
  TcpPair(const TcpPair&) = delete;
  TcpPair& operator=(const TcpPair&) = delete;

  int client() const { return client_; }
  int server() const { return server_; }
  void CloseServer() {
    if (server_ >= 0) close(server_);
    server_ = -1;
  }

  // Whether the system took all of it.
  static bool Write(int socket, const std::string& text) {
    return write(socket, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  // Whether there is something to be read, or the end of the connection, within `wait_ms`.
  static bool IsReadable(int socket, int wait_ms = 5000) {
    pollfd ready{socket, POLLIN, 0};
    return poll(&ready, 1, wait_ms) == 1;
  }
  // Whether nothing comes for so long that it must be held back, not just under way.
  static bool StaysQuiet(int socket) { return !IsReadable(socket, /*wait_ms=*/20); }
  // The first bytes that come, at most 64; empty if none come for 5 seconds.
  static std::string Read(int socket) {
    if (!IsReadable(socket)) return "";
    std::array<char, 64> buffer{};
    const ssize_t count = read(socket, buffer.data(), buffer.size());
    return count > 0 ? std::string(buffer.data(), static_cast<size_t>(count)) : "";
  }

 private:
  int client_ = -1;
  int server_ = -1;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_TCP_PAIR_H_
