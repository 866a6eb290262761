#include "server/transport/listener.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "sru/v1/inference.grpc.pb.h"
#include "tests/testing/poll.h"

namespace sru::server::transport {
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

// Calls a real server behind `listener` at `target`: gRPC's name of the connection leads to its
// socket.
void ExpectFindsConnection(Listener& listener, const std::string& target) {
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
    struct stat file {};
    ASSERT_EQ(fstat(socket, &file), 0);
    EXPECT_EQ(listener.DeliveredBytes(socket, file.st_ino), 0);
    listener.NoteDelivered(service.peer(), 700);
    listener.NoteDelivered("ipv4:192.0.2.1:1", 1);
    listener.NoteDelivered(service.peer(), 70);
    EXPECT_EQ(listener.DeliveredBytes(socket, file.st_ino), 770);
    EXPECT_EQ(listener.DeliveredBytes(socket, file.st_ino + 1), std::nullopt);
    EXPECT_EQ(listener.num_connections(), 1);
  }
  EXPECT_EQ(listener.FindConnection("ipv4:192.0.2.1:1"), -1);
  listener.Stop();
  server->Shutdown();
  // gRPC closes the sockets a little later, on a thread of its own.
  EXPECT_TRUE(testing::PollUntil([&] { return listener.num_connections() == 0; }));
  EXPECT_EQ(listener.FindConnection(service.peer()), -1);
}

class ListenerAddressTest : public ::testing::TestWithParam<std::pair<std::string, std::string>> {};

// For every way in which an address is written.
TEST_P(ListenerAddressTest, FindsConnectionsByTheirPeer) {
  const auto& [host, target] = GetParam();
  ListenAddress address;
  address.host = host;
  address.port = 0;
  auto opened = Listener::Open("listen", address, {});
  if (!opened.ok() && host == "::1") GTEST_SKIP() << "no IPv6: " << opened.status();
  ASSERT_TRUE(opened.ok()) << opened.status();
  ExpectFindsConnection(**opened, target);
}

// An address fe80::... that a socket can be bound to: not one that is still being tried out.
struct LinkLocal {
  std::string address;
  std::string interface;
  uint32_t scope = 0;
};

bool CanBind(const sockaddr_in6& address) {
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
  const bool bound =
      bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(socket);
  return bound;
}

std::optional<LinkLocal> FindLinkLocal() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return std::nullopt;
  std::optional<LinkLocal> found;
  for (const ifaddrs* one = all; one != nullptr && !found.has_value(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET6) continue;
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
    if (!IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) || !CanBind(v6)) continue;
    char text[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
    found = LinkLocal{text, one->ifa_name, v6.sin6_scope_id};
  }
  freeifaddrs(all);
  return found;
}

TEST(ListenerTest, FindsLinkLocalConnectionsByTheirPeer) {
  const std::optional<LinkLocal> local = FindLinkLocal();
  if (!local.has_value()) GTEST_SKIP() << "no link-local address can be bound";
  const std::string target = absl::StrCat("ipv6:[", local->address, "%25", local->scope, "]");
  for (const std::string& host :
       {absl::StrCat(local->address, "%", local->interface), std::string("::")}) {
    SCOPED_TRACE(absl::StrCat(host, " at ", target));
    ListenAddress address;
    address.host = host;
    address.port = 0;
    const auto opened = Listener::Open("listen", address, {});
    ASSERT_TRUE(opened.ok()) << opened.status();
    ExpectFindsConnection(**opened, target);
  }
}

std::unique_ptr<Listener> OpenLoopback(Listener::Options options = {}) {
  ListenAddress address;
  address.host = "127.0.0.1";
  address.port = 0;
  auto opened = Listener::Open("listen", address, std::move(options));
  EXPECT_TRUE(opened.ok()) << opened.status();
  return opened.ok() ? *std::move(opened) : nullptr;
}

// poll() and accept() fail with EINVAL and EMFILE where nothing may be opened: as they do with
// ENOMEM, they must be tried again.
TEST(ListenerTest, GoesOnAcceptingAfterFailures) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizers look at memory through pipes, for which no descriptor is left";
#endif
  const std::unique_ptr<Listener> listener = OpenLoopback();
  ASSERT_NE(listener, nullptr);
  PeerService service;
  grpc::ServerBuilder builder;
  listener->AddTo(&builder, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(listener->address().port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);

  const rlimit none{0, limit.rlim_max};
  listener->Start();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const bool failed = testing::PollUntil([&] { return listener->num_failures() >= 3; });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(failed);
  EXPECT_TRUE(testing::PollUntil([&] { return listener->num_connections() == 1; }));
  close(client);
  listener->Stop();
  server->Shutdown();
}

// Without what wakes its thread Stop() would wait for ever.
TEST(ListenerDeathTest, NeedsADescriptorToBeStopped) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizers look at memory through pipes, for which no descriptor is left";
#endif
  const auto open_without_files = [] {
    const rlimit none{3, 3};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) exit(3);
    ListenAddress address;
    address.host = "127.0.0.1";
    address.port = 0;
    const auto opened = Listener::Open("listen", address, {});
    exit(absl::IsUnavailable(opened.status()) ? 0 : 1);
  };
  EXPECT_EXIT(open_without_files(), ::testing::ExitedWithCode(0), "");
}

TEST(ListenerTest, TellsOfTheConnectionsThatItAccepts) {
  Listener::Options options;
  std::atomic<int> accepted{0};
  options.on_accepted = [&](int fd, ino_t inode, const std::string& peer) {
    struct stat status {};
    if (fstat(fd, &status) == 0 && status.st_ino == inode &&
        peer == absl::StrCat("ipv4:127.0.0.1:", PeerPort(fd))) {
      ++accepted;
    }
  };
  const std::unique_ptr<Listener> listener = OpenLoopback(std::move(options));
  ASSERT_NE(listener, nullptr);
  PeerService service;
  grpc::ServerBuilder builder;
  listener->AddTo(&builder, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  listener->Start();
  const auto stub = v1::InferenceService::NewStub(
      grpc::CreateChannel(absl::StrCat("ipv4:127.0.0.1:", listener->address().port),
                          grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  v1::ListModelsResponse response;
  EXPECT_TRUE(stub->ListModels(&context, {}, &response).ok());
  EXPECT_EQ(accepted, 1);
  listener->Stop();
  server->Shutdown();
}

TEST(ListenerCloseTest, EndsTheConnectionOfThatPeerOnly) {
  const std::unique_ptr<Listener> opened = OpenLoopback();
  ASSERT_NE(opened, nullptr);
  Listener& listener = *opened;
  PeerService service;
  grpc::ServerBuilder builder;
  listener.AddTo(&builder, grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  listener.Start();
  std::vector<std::string> peers;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 2; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channels.push_back(
        grpc::CreateCustomChannel(absl::StrCat("ipv4:127.0.0.1:", listener.address().port),
                                  grpc::InsecureChannelCredentials(), arguments));
    grpc::ClientContext context;
    v1::ListModelsResponse response;
    ASSERT_TRUE(
        v1::InferenceService::NewStub(channels.back())->ListModels(&context, {}, &response).ok());
    peers.push_back(service.peer());
  }
  EXPECT_FALSE(listener.Close("ipv4:192.0.2.1:1"));
  EXPECT_EQ(listener.num_connections(), 2);
  EXPECT_TRUE(listener.Close(peers[0]));
  EXPECT_TRUE(testing::PollUntil([&] { return listener.num_connections() == 1; }));
  EXPECT_FALSE(listener.Close(peers[0]));
  EXPECT_GE(listener.FindConnection(peers[1]), 0);
  listener.Stop();
  server->Shutdown();
}

INSTANTIATE_TEST_SUITE_P(Addresses, ListenerAddressTest,
                         ::testing::Values(std::pair("127.0.0.1", "ipv4:127.0.0.1"),
                                           std::pair("0.0.0.0", "ipv4:127.0.0.1"),
                                           std::pair("::1", "ipv6:[::1]")));

}  // namespace
}  // namespace sru::server::transport
