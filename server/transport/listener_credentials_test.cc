#include "server/transport/listener_credentials.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "server/compat/grpc_version.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/certificates.h"

namespace sru::server {
namespace {

using ::sru::testing::Certificate;
using ::sru::testing::CertificateOptions;

CertificateOptions Named(const std::string& name, bool authority) {
  CertificateOptions options;
  options.name = name;
  options.authority = authority;
  return options;
}

// An authority, a server and a client of its own.
struct Party {
  explicit Party(const std::string& name)
      : authority(Named(name + " authority", true)),
        server(Named(name + " server", false), &authority),
        client(Named(name + " client", false), &authority) {}
  TlsPem pem() const { return {server.pem(), server.key_pem(), authority.pem()}; }

  Certificate authority;
  Certificate server;
  Certificate client;
};

class ListenerCredentialsTest : public ::testing::Test {
 protected:
  ListenerCredentialsTest() {
    EXPECT_TRUE(certificates_->Use(first_.pem()).ok());
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", MakeListenerCredentials(certificates_, nullptr),
                             &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  // What a call of `party` gets on a new connection, if it trusts the server of `trusted`.
  grpc::StatusCode Call(const Party& party, const Party& trusted) const {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = trusted.authority.pem();
    options.pem_cert_chain = party.client.pem();
    options.pem_private_key = party.client.key_pem();
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto stub = v1::InferenceService::NewStub(grpc::CreateCustomChannel(
        absl::StrCat("localhost:", port_), grpc::SslCredentials(options), arguments));
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    return stub->ListModels(&context, {}, &response).error_code();
  }

  const Party first_{"first"};
  const Party second_{"second"};
  const std::shared_ptr<ServedCertificates> certificates_ =
      std::make_shared<ServedCertificates>(/*mutual=*/true);
  v1::InferenceService::Service service_;  // answers UNIMPLEMENTED
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ListenerCredentialsTest, NewConnectionsSeeNewCertificates) {
  EXPECT_EQ(Call(first_, first_), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Call(second_, first_), grpc::StatusCode::UNAVAILABLE);
  ASSERT_TRUE(certificates_->Use(second_.pem()).ok());
  EXPECT_EQ(Call(second_, second_), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Call(first_, second_), grpc::StatusCode::UNAVAILABLE);
}

#if SRU_GRPC_IS_CURRENT

TEST_F(ListenerCredentialsTest, WhatIsRefusedLeavesAllOfTheEarlierInUse) {
  TlsPem broken = second_.pem();
  broken.key = "no PEM";
  EXPECT_FALSE(certificates_->Use(broken).ok());
  EXPECT_EQ(Call(first_, first_), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Call(second_, first_), grpc::StatusCode::UNAVAILABLE);
}

#endif  // SRU_GRPC_IS_CURRENT

}  // namespace
}  // namespace sru::server
