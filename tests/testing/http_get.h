// A minimal HTTP client, so that tests of the metrics port need no other program.
#ifndef SRU_TESTS_TESTING_HTTP_GET_H_
#define SRU_TESTS_TESTING_HTTP_GET_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

namespace sru::testing {

struct HttpResponse {
  int status = 0;  // 0: no answer
  std::string headers;
  std::string body;
};

// Sends the bytes of one request to 127.0.0.1:`port` and reads until the server closes the
// connection, or for 10 s without a byte.
inline HttpResponse HttpExchange(int port, const std::string& request) {
  HttpResponse response;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return response;
  timeval timeout{};
  timeout.tv_sec = 10;
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    if (send(fd, request.data(), request.size(), MSG_NOSIGNAL) ==
        static_cast<ssize_t>(request.size())) {
      char buffer[4096];
      ssize_t count = 0;
      while ((count = recv(fd, buffer, sizeof(buffer), 0)) > 0) answer.append(buffer, count);
    }
  }
  close(fd);
  const size_t end = answer.find("\r\n\r\n");
  if (end == std::string::npos || answer.compare(0, 5, "HTTP/") != 0) return response;
  response.status = std::atoi(answer.c_str() + answer.find(' '));
  response.headers = answer.substr(0, end);
  response.body = answer.substr(end + 4);
  return response;
}

inline HttpResponse HttpGet(int port, const std::string& path, const std::string& method = "GET") {
  return HttpExchange(
      port, method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_HTTP_GET_H_
