#include "server/rpc/grpc_credentials.h"

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/certificates.h"

namespace sru::server::rpc {
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

  Certificate authority;
  Certificate server;
  Certificate client;
};

class GrpcCredentialsTest : public ::testing::TestWithParam<bool> {
 protected:
  GrpcCredentialsTest() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", MakeCredentials([this] { return files_; }), &port_);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  static bool mutual() { return GetParam(); }

  static std::shared_ptr<const transport::TlsPem> Files(const Party& party) {
    return std::make_shared<const transport::TlsPem>(
        transport::TlsPem{party.server.pem(), party.server.key_pem(),
                          mutual() ? party.authority.pem() : std::string()});
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

  // What a client gets whose authority the server does not know.
  static grpc::StatusCode UnknownClient() { return mutual() ? grpc::StatusCode::UNAVAILABLE : kIn; }

  static constexpr grpc::StatusCode kIn = grpc::StatusCode::UNIMPLEMENTED;
  const Party first_{"first"};
  const Party second_{"second"};
  std::shared_ptr<const transport::TlsPem> files_ = Files(first_);  // changes between calls
  v1::InferenceService::Service service_;                           // answers UNIMPLEMENTED
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_P(GrpcCredentialsTest, NewConnectionsSeeNewCertificates) {
  EXPECT_EQ(Call(first_, first_), kIn);
  EXPECT_EQ(Call(second_, first_), UnknownClient());
  files_ = Files(second_);
  EXPECT_EQ(Call(second_, second_), kIn);
  EXPECT_EQ(Call(first_, second_), UnknownClient());
  EXPECT_EQ(Call(first_, first_), grpc::StatusCode::UNAVAILABLE);
}

INSTANTIATE_TEST_SUITE_P(Tls, GrpcCredentialsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "mutual" : "server_only"; });

}  // namespace
}  // namespace sru::server::rpc
