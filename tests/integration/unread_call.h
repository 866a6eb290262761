// A unary gRPC call whose client announces no room for an answer and never reads one. It is written
// by hand, since no client library behaves like that.
#ifndef SRU_TESTS_INTEGRATION_UNREAD_CALL_H_
#define SRU_TESTS_INTEGRATION_UNREAD_CALL_H_

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace sru::testing {

class UnreadCall {
 public:
  // Connects to a port of this machine and sends a request to `path` ("/package.Service/Method").
  UnreadCall(int port, const std::string& path, const std::string& message) {
    socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
      ADD_FAILURE() << "cannot connect to port " << port;
      return;
    }
    std::string headers;
    for (const auto& [name, value] :
         std::vector<std::pair<std::string, std::string>>{{":method", "POST"},
                                                          {":scheme", "http"},
                                                          {":path", path},
                                                          {":authority", "localhost"},
                                                          {"te", "trailers"},
                                                          {"content-type", "application/grpc"}}) {
      // Literal, not indexed, not Huffman-coded; all are shorter than 127 bytes.
      headers += '\0';
      headers += static_cast<char>(name.size());
      headers += name;
      headers += static_cast<char>(value.size());
      headers += value;
    }
    std::string data(1, '\0');  // not compressed
    AppendNumber(message.size(), 4, &data);
    data += message;
    std::string bytes = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    bytes += Frame(kSettings, 0, 0, std::string("\0\4\0\0\0\0", 6));  // INITIAL_WINDOW_SIZE 0
    bytes += Frame(kHeaders, kEndHeaders, 1, headers);
    for (size_t begin = 0; begin < data.size(); begin += kMaxFrame) {
      const std::string part = data.substr(begin, kMaxFrame);
      bytes += Frame(kData, begin + part.size() == data.size() ? kEndStream : 0, 1, part);
    }
    EXPECT_EQ(send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  ~UnreadCall() { Close(); }
  UnreadCall(const UnreadCall&) = delete;
  UnreadCall& operator=(const UnreadCall&) = delete;

  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

  // Whether the server ends the connection within `wait_ms` of silence.
  bool IsClosedByServer(int wait_ms = 30000) const {
    std::array<char, 4096> buffer{};
    for (;;) {
      pollfd ready{socket_, POLLIN, 0};
      if (poll(&ready, 1, wait_ms) != 1) return false;
      if (recv(socket_, buffer.data(), buffer.size(), 0) <= 0) return true;
    }
  }

 private:
  static constexpr size_t kMaxFrame = 16384;
  static constexpr char kData = 0;
  static constexpr char kHeaders = 1;
  static constexpr char kSettings = 4;
  static constexpr char kEndStream = 1;
  static constexpr char kEndHeaders = 4;

  static void AppendNumber(size_t value, int bytes, std::string* out) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
      *out += static_cast<char>(value >> shift);
    }
  }
  static std::string Frame(char type, char flags, size_t stream, const std::string& payload) {
    std::string frame;
    AppendNumber(payload.size(), 3, &frame);
    frame += type;
    frame += flags;
    AppendNumber(stream, 4, &frame);
    return frame + payload;
  }

  int socket_ = -1;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_INTEGRATION_UNREAD_CALL_H_
