// What a client says when it cannot connect: gRPC's reason, and what to do about it.

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/client.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "tests/testing/certificates.h"
#include "tests/testing/fake_server.h"

namespace sru::client {
namespace {

using ::sru::testing::Certificate;
using ::sru::testing::CertificateOptions;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr absl::Duration kTimeout = absl::Seconds(20);

CertificateOptions Named(const std::string& name, bool authority = false) {
  CertificateOptions options;
  options.name = name;
  options.authority = authority;
  return options;
}

// Refuses whatever comes, by HTTP/1.1.
class Http1Server {
 public:
  Http1Server() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 16), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Http1Server() {
    shutdown(fd_, SHUT_RDWR);  // ends accept()
    thread_.join();
    close(fd_);
  }
  Http1Server(const Http1Server&) = delete;
  Http1Server& operator=(const Http1Server&) = delete;

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

 private:
  void Serve() {
    constexpr char kAnswer[] = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    for (int client = 0; (client = accept(fd_, nullptr, nullptr)) >= 0; close(client)) {
      const timeval most = {1, 0};
      setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
      char buffer[4096];
      static_cast<void>(recv(client, buffer, sizeof(buffer), 0));
      static_cast<void>(send(client, kAnswer, sizeof(kAnswer) - 1, MSG_NOSIGNAL));
      shutdown(client, SHUT_WR);
      while (recv(client, buffer, sizeof(buffer), 0) > 0) {
      }
    }
  }

  const int fd_;
  int port_ = 0;
  std::thread thread_;
};

class ConnectTest : public ::testing::Test {
 protected:
  ConnectTest()
      : ours_(Named("ours", true)),
        theirs_(Named("theirs", true)),
        server_(Named("server"), &ours_),
        client_(Named("client"), &ours_),
        stranger_(Named("stranger"), &theirs_) {
    for (const char* variable : {"grpc_proxy", "https_proxy", "http_proxy"}) unsetenv(variable);
  }
  ~ConnectTest() override {
    for (const std::string& path : files_) unlink(path.c_str());
  }

  // A server with TLS; with `client_ca` it asks clients for certificates.
  ConnectOptions Serve(const Certificate& certificate, const std::string& client_ca = "") {
    grpc::SslServerCredentialsOptions options(
        client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                          : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = client_ca;
    options.pem_key_cert_pairs.push_back({certificate.key_pem(), certificate.pem()});
    fake_ = std::make_unique<FakeServer>(0, grpc::SslServerCredentials(options));
    ConnectOptions connect;
    connect.address = absl::StrCat("localhost:", fake_->port());
    connect.tls_ca = File(ours_.pem());
    return connect;
  }

  std::string File(const std::string& contents) {
    const std::string path =
        absl::StrCat(::testing::TempDir(), "/connect_test_", getpid(), "_", files_.size());
    std::ofstream(path, std::ios::binary) << contents;
    files_.push_back(path);
    return path;
  }

  // The message that the user of a client reads.
  static std::string WhyNot(const ConnectOptions& options) {
    auto client = Client::Create(options);
    if (!client.ok()) return std::string(client.status().message());
    const absl::Status status = (*client)->Connect(kTimeout);
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    return std::string(status.message());
  }

  const Certificate ours_;
  const Certificate theirs_;
  const Certificate server_;
  const Certificate client_;
  const Certificate stranger_;
  std::unique_ptr<FakeServer> fake_;
  std::vector<std::string> files_;
};

TEST_F(ConnectTest, NothingIsWrong) {
  ConnectOptions options = Serve(server_, ours_.pem());
  options.tls_cert = File(client_.pem());
  options.tls_key = File(client_.key_pem());
  const absl::Status status = (*Client::Create(options))->Connect(kTimeout);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ConnectTest, AServerThatIsNotTrusted) {
  ConnectOptions options = Serve(server_);
  options.tls_ca = File(theirs_.pem());
  EXPECT_THAT(WhyNot(options), AllOf(StartsWith("cannot connect to localhost:"),
                                     HasSubstr("certificate verify failed"),
                                     HasSubstr("no authority in tls_ca vouches for")));
  CertificateOptions expired = Named("expired");
  expired.until = absl::Now() - absl::Minutes(1);
  EXPECT_THAT(WhyNot(Serve(Certificate(expired, &ours_))), HasSubstr("or it has expired"));
}

TEST_F(ConnectTest, AnotherName) {
  ConnectOptions options = Serve(server_);
  options.tls_server_name = "sru.example";
  EXPECT_THAT(WhyNot(options), AllOf(HasSubstr("Peer name sru.example is not in peer certificate"),
                                     HasSubstr("give it with tls_server_name")));
}

TEST_F(ConnectTest, AClientCertificateIsWanted) {
  ConnectOptions options = Serve(server_, ours_.pem());
  EXPECT_THAT(WhyNot(options), EndsWith("give it with tls_cert and tls_key"));
  options.tls_cert = File(stranger_.pem());
  options.tls_key = File(stranger_.key_pem());
  EXPECT_THAT(WhyNot(options), EndsWith("give it with tls_cert and tls_key"));
}

TEST_F(ConnectTest, OnlyOneSideSpeaksTls) {
  ConnectOptions options = Serve(server_);
  options.tls_ca = "";
  EXPECT_THAT(WhyNot(options),
              HasSubstr("the server may speak TLS: name its authority with tls_ca"));
  const FakeServer plain;
  options.address = plain.address();
  options.tls_ca = File(ours_.pem());
  EXPECT_THAT(WhyNot(options), HasSubstr("the server does not speak TLS"));
}

TEST_F(ConnectTest, NobodyListens) {
  ConnectOptions options;
  options.address = DeadAddress();
  EXPECT_THAT(WhyNot(options),
              AllOf(StartsWith("cannot connect to "), EndsWith("Connection refused")));
  options.tls_ca = File(ours_.pem());
  EXPECT_THAT(WhyNot(options),
              AllOf(StartsWith("cannot connect to "), EndsWith("Connection refused")));
}

TEST_F(ConnectTest, AServerThatDoesNotServe) {
  FakeServer server;
  server.SetServing("", false);
  ConnectOptions options;
  options.address = server.address();
  EXPECT_THAT(WhyNot(options), HasSubstr("answers but does not serve"));
  // A client that connects nevertheless can ask for the reason.
  options.only_serving = false;
  auto client = Client::Create(options);
  EXPECT_TRUE((*client)->Connect(kTimeout).ok());
  const absl::StatusOr<ServingStatus> health = (*client)->Health();
  ASSERT_TRUE(health.ok()) << health.status();
  EXPECT_EQ(*health, ServingStatus::kNotServing);
  const auto models = (*client)->ListModels();
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_EQ(models->statuses(0).message(), "config.json: it is broken");
}

TEST_F(ConnectTest, APortThatDoesNotSpeakGrpc) {
  const Http1Server server;
  ConnectOptions options;
  options.address = server.address();
  for (const bool only_serving : {true, false}) {
    options.only_serving = only_serving;
    EXPECT_THAT(WhyNot(options),
                AllOf(StartsWith("cannot connect to 127.0.0.1:"), HasSubstr("does not speak gRPC"),
                      HasSubstr("--metrics_listen")));
  }
}

TEST_F(ConnectTest, FilesAreLookedAtFirst) {
  ConnectOptions options;
  options.tls_cert = File(client_.pem());
  options.tls_ca = File(ours_.pem());
  options.tls_key = File(stranger_.key_pem());
  EXPECT_THAT(WhyNot(options), AllOf(StartsWith("tls_key: "), HasSubstr("another key")));
  options.tls_key = options.tls_cert;
  EXPECT_THAT(WhyNot(options), StartsWith("tls_key: expected a PEM private key"));
  options.tls_key = File(client_.key_pem());
  options.tls_cert = options.tls_key;
  EXPECT_THAT(WhyNot(options), StartsWith("tls_cert: expected PEM certificates"));
  options.tls_cert = "";
  options.tls_key = "";
  options.tls_ca = File("no certificate");
  EXPECT_THAT(WhyNot(options), StartsWith("tls_ca: expected PEM certificates"));
}

}  // namespace
}  // namespace sru::client
