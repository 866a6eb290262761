#include "server/transport/own_port_check.h"

#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"

namespace sru::server::transport {
namespace {

constexpr absl::Duration kGoodbye = absl::Seconds(1);

// A connection whose reads and writes fail after `timeout`; -1 if there is none.
int ConnectTo(const std::string& host, int port, absl::Duration timeout) {
  const bool any = host == "0.0.0.0" || host == "::";
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(any ? "127.0.0.1" : host.c_str(), std::to_string(port).c_str(), &hints, &found) !=
      0) {
    return -1;
  }
  const timeval limit = absl::ToTimeval(timeout);
  int connected = -1;
  for (const addrinfo* one = found; one != nullptr && connected < 0; one = one->ai_next) {
    const int fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    if (fd < 0) continue;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, one->ai_addr, one->ai_addrlen) == 0) {
      connected = fd;
    } else {
      close(fd);
    }
  }
  freeaddrinfo(found);
  return connected;
}

}  // namespace

absl::Status CheckTlsPort(const std::string& host, int port, absl::Duration timeout) {
  const int fd = ConnectTo(host, port, timeout);
  if (fd < 0) return absl::OkStatus();
  const std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context(SSL_CTX_new(TLS_client_method()),
                                                             SSL_CTX_free);
  const std::unique_ptr<SSL, void (*)(SSL*)> ssl(
      context == nullptr ? nullptr : SSL_new(context.get()), SSL_free);
  bool done = false;
  if (ssl != nullptr) {
    // Whom the certificate is for is its clients' business.
    SSL_set_verify(ssl.get(), SSL_VERIFY_NONE, nullptr);
    constexpr unsigned char kHttp2[] = {2, 'h', '2'};
    SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof(kHttp2));
    SSL_set_fd(ssl.get(), fd);
    // Under TLS 1.2 mutual TLS ends with a refusal, after the server has shown what it has.
    done = SSL_connect(ssl.get()) == 1 || SSL_get0_peer_certificate(ssl.get()) != nullptr;
  }
  ERR_clear_error();
  // Until the server has closed its end too, and so has seen all of it.
  shutdown(fd, SHUT_WR);
  const timeval limit = absl::ToTimeval(std::min(timeout, kGoodbye));
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  char ignored[512];
  while (done && read(fd, ignored, sizeof(ignored)) > 0) {
  }
  close(fd);
  if (done) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "--tls_cert: gRPC took a connection to ", host, ":", port,
      " but made no handshake with these certificates; GRPC_VERBOSITY=debug says more"));
}

}  // namespace sru::server::transport
