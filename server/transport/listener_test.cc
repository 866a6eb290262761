#include "server/transport/listener.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/poll.h"

namespace sru::server {
namespace {

// Says what gRPC calls its caller.
class PeerService final : public v1::InferenceService::Service {
 public:
  const std::string& peer() const { return peer_; }

 private:
  grpc::Status ListModels(grpc::ServerContext* context, const v1::ListModelsRequest* /*request*/,
                          v1::ListModelsResponse* /*response*/) override {
    peer_ = context->peer();
    return grpc::Status::OK;
  }

  std::string peer_;
};

int PeerPort(int socket) {
  sockaddr_in6 address{};  // the port of both families is at the same place
  socklen_t size = sizeof(address);
  if (getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return -1;
  return ntohs(address.sin6_port);
}

class ListenerTest : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

// gRPC's name of a connection leads to its socket, for every way in which an address is written.
TEST_P(ListenerTest, FindsConnectionsByTheirPeer) {
  const auto& [host, target] = GetParam();
  ListenAddress address;
  address.host = host;
  address.port = 0;
  auto opened = Listener::Open("listen", address, {});
  if (!opened.ok() && host == "::1") GTEST_SKIP() << "no IPv6: " << opened.status();
  ASSERT_TRUE(opened.ok()) << opened.status();
  Listener& listener = **opened;
  PeerService service;
  grpc::ServerBuilder builder;
  listener.AddTo(&builder, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  listener.Start();

  {
    const auto stub = v1::InferenceService::NewStub(grpc::CreateChannel(
        absl::StrCat(target, ":", listener.address().port), grpc::InsecureChannelCredentials()));
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    const grpc::Status status = stub->ListModels(&context, {}, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    const int socket = listener.FindConnection(service.peer());
    ASSERT_GE(socket, 0) << service.peer();
    int port = 0;
    ASSERT_TRUE(absl::SimpleAtoi(service.peer().substr(service.peer().rfind(':') + 1), &port));
    EXPECT_EQ(PeerPort(socket), port);
    EXPECT_EQ(listener.num_connections(), 1);
  }
  EXPECT_EQ(listener.FindConnection("ipv4:192.0.2.1:1"), -1);
  listener.Stop();
  server->Shutdown();
  // gRPC closes the sockets a little later, on a thread of its own.
  EXPECT_TRUE(testing::PollUntil([&] { return listener.num_connections() == 0; }));
  EXPECT_EQ(listener.FindConnection(service.peer()), -1);
}

INSTANTIATE_TEST_SUITE_P(Addresses, ListenerTest,
                         ::testing::Values(std::pair("127.0.0.1", "ipv4:127.0.0.1"),
                                           std::pair("0.0.0.0", "ipv4:127.0.0.1"),
                                           std::pair("::1", "ipv6:[::1]")));

}  // namespace
}  // namespace sru::server
