#include "server/transport/own_port_check.h"

#include <netinet/in.h>
#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"

namespace sru::server::transport {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kTimeout = absl::Seconds(20);

// A port of 127.0.0.1 that takes connections, as gRPC's do.
class Port {
 public:
  Port() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    std::signal(SIGPIPE, SIG_IGN);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any_address = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(socket_, any_address, size), 0);
    EXPECT_EQ(listen(socket_, 1), 0);
    EXPECT_EQ(getsockname(socket_, any_address, &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~Port() { Close(); }
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  int port() const { return port_; }
  int Accept() const { return accept(socket_, nullptr, nullptr); }
  void Close() {
    if (socket_ >= 0) close(socket_);
    socket_ = -1;
  }

 private:
  int socket_ = -1;
  int port_ = 0;
};

TEST(OwnPortCheckTest, AHandshakeIsEnough) {
  sru::testing::CertificateOptions options;
  options.name = "server";
  const sru::testing::Certificate certificate(options);
  const std::string chain = certificate.pem();
  const std::string key = certificate.key_pem();
  for (const bool mutual : {false, true}) {
    const Port port;
    std::thread server([&] {
      const int fd = port.Accept();
      SSL_CTX* const context = SSL_CTX_new(TLS_server_method());
      BIO* bio = BIO_new_mem_buf(chain.data(), static_cast<int>(chain.size()));
      X509* const x509 = PEM_read_bio_X509(bio, nullptr, nullptr, nullptr);
      BIO_free(bio);
      bio = BIO_new_mem_buf(key.data(), static_cast<int>(key.size()));
      EVP_PKEY* const pkey = PEM_read_bio_PrivateKey(bio, nullptr, nullptr, nullptr);
      BIO_free(bio);
      SSL_CTX_use_certificate(context, x509);
      SSL_CTX_use_PrivateKey(context, pkey);
      if (mutual) {
        SSL_CTX_set_max_proto_version(context, TLS1_2_VERSION);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
      }
      SSL* const ssl = SSL_new(context);
      SSL_set_fd(ssl, fd);
      EXPECT_EQ(SSL_accept(ssl) == 1, !mutual);
      SSL_free(ssl);
      close(fd);
      EVP_PKEY_free(pkey);
      X509_free(x509);
      SSL_CTX_free(context);
    });
    EXPECT_TRUE(CheckTlsPort("0.0.0.0", port.port(), kTimeout).ok()) << mutual;
    server.join();
  }
}

// What gRPC does with a key that OpenSSL does not take.
TEST(OwnPortCheckTest, AConnectionThatHangsIsNone) {
  const Port port;
  const absl::Status status = CheckTlsPort("127.0.0.1", port.port(), absl::Milliseconds(20));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("--tls_cert: "), HasSubstr("made no handshake")));
}

TEST(OwnPortCheckTest, AConnectionThatIsClosedIsNone) {
  const Port port;
  std::thread server([&] { close(port.Accept()); });
  EXPECT_EQ(CheckTlsPort("127.0.0.1", port.port(), kTimeout).code(),
            absl::StatusCode::kUnavailable);
  server.join();
}

TEST(OwnPortCheckTest, WhoCannotConnectCannotTell) {
  Port port;
  port.Close();
  EXPECT_TRUE(CheckTlsPort("127.0.0.1", port.port(), kTimeout).ok());
}

}  // namespace
}  // namespace sru::server::transport
