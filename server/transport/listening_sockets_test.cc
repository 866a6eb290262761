#include "server/transport/listening_sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/transport/acceptor.h"
#include "tests/testing/checked.h"
#include "tests/testing/poll.h"
#include "tests/testing/test_files.h"

namespace sru::server::transport {
namespace {

using ::sru::testing::Checked;
using ::sru::testing::PollUntil;
using ::testing::HasSubstr;

// Connects to a port of 127.0.0.1; -1 if nobody listens.
int ConnectTo(int port) {
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(client, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) return client;
  close(client);
  return -1;
}

TEST(ListeningSocketsTest, NamesOfPeersAreAsGrpcWritesThem) {
  sockaddr_storage address{};
  auto& v4 = reinterpret_cast<sockaddr_in&>(address);
  v4.sin_family = AF_INET;
  v4.sin_port = htons(4711);
  inet_pton(AF_INET, "10.0.0.1", &v4.sin_addr);
  EXPECT_EQ(PeerName(address), "ipv4:10.0.0.1:4711");
  address = {};
  auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(4711);
  inet_pton(AF_INET6, "::ffff:10.0.0.1", &v6.sin6_addr);
  EXPECT_EQ(PeerName(address), "ipv4:10.0.0.1:4711");
  inet_pton(AF_INET6, "fe80::1", &v6.sin6_addr);
  EXPECT_EQ(PeerName(address), "ipv6:%5Bfe80::1%5D:4711");
  v6.sin6_scope_id = 4;
  EXPECT_EQ(PeerName(address), "ipv6:%5Bfe80::1%254%5D:4711");
  address = {};
  address.ss_family = AF_UNIX;
  EXPECT_EQ(PeerName(address), "unix:");
}

TEST(ListeningSocketsTest, ErrorsNameTheFlagAndTheAddress) {
  ListenAddress address = {"127.0.0.1", 0};
  const auto sockets = Checked(OpenListeningSockets("listen", &address));
  EXPECT_GT(address.port, 0);
  const absl::Status taken = CheckListening({{"admin_listen", address}});
  EXPECT_TRUE(absl::IsUnavailable(taken));
  EXPECT_THAT(
      std::string(taken.message()),
      HasSubstr(absl::StrCat("cannot listen on ", address.ToString(), " (--admin_listen)")));
  for (const int socket : *sockets) close(socket);
  EXPECT_TRUE(CheckListening({{"listen", address}}).ok());
  EXPECT_EQ(ConnectTo(address.port), -1);
  EXPECT_TRUE(absl::IsUnavailable(CheckListening({{"listen", {"192.0.2.1", 0}}})));
}

TEST(ListeningSocketsTest, AFileThatNobodyListensOnMakesWay) {
  const models::TempDirectory directory;
  ListenAddress address = {absl::StrCat(kUnixPrefix, directory.path("a.sock")), 0};
  const auto sockets = Checked(OpenListeningSockets("listen", &address));
  EXPECT_TRUE(absl::IsUnavailable(CheckListening({{"listen", address}})));
  for (const int socket : *sockets) close(socket);
  EXPECT_TRUE(CheckListening({{"listen", address}}).ok());
  const std::string file = directory.Write("models.txt", "not a socket");
  EXPECT_TRUE(
      absl::IsUnavailable(CheckListening({{"listen", {absl::StrCat(kUnixPrefix, file), 0}}})));
  EXPECT_EQ(models::ReadWholeFile(file), "not a socket");
}

TEST(ListeningSocketsTest, TwoFlagsWithOnePortAreNamed) {
  ListenAddress address = {"127.0.0.1", 0};
  const auto sockets = Checked(OpenListeningSockets("listen", &address));
  for (const int socket : *sockets) close(socket);
  const absl::Status status =
      CheckListening({{"listen", {"0.0.0.0", address.port}}, {"http_listen", address}});
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(HasSubstr("(--http_listen)"),
                               HasSubstr(absl::StrCat("; --listen is 0.0.0.0:", address.port))));
  EXPECT_TRUE(
      CheckListening({{"listen", {"127.0.0.1", 0}}, {"http_listen", {"127.0.0.1", 0}}}).ok());
}

// poll() and accept() fail with EINVAL and EMFILE where nothing may be opened: as they do with
// ENOMEM, they must be tried again.
TEST(AcceptorTest, GoesOnAcceptingAfterFailures) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizers look at memory through pipes, for which no descriptor is left";
#endif
  ListenAddress address = {"127.0.0.1", 0};
  auto sockets = Checked(OpenListeningSockets("listen", &address));
  std::atomic<int> accepted{0};
  std::atomic<int> told{0};
  auto acceptor = Acceptor::Create(
      *std::move(sockets), "a port",
      [&](int fd, const sockaddr_storage& from) {
        EXPECT_THAT(PeerName(from), HasSubstr("ipv4:127.0.0.1:"));
        ++accepted;
        close(fd);
      },
      [&] { ++told; });
  ASSERT_TRUE(acceptor.ok()) << acceptor.status();
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  (*acceptor)->Start();
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(address.port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const rlimit none{0, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  ASSERT_EQ(connect(client, reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  const bool failed = PollUntil([&] { return (*acceptor)->num_failures() >= 3; });
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_TRUE(failed);
  EXPECT_GE(told, 1);
  EXPECT_TRUE(PollUntil([&] { return accepted == 1; }));
  close(client);
  // A port accepts what waits at it before it is closed.
  const int last = ConnectTo(address.port);
  EXPECT_GE(last, 0);
  (*acceptor)->Stop();
  EXPECT_EQ(accepted, 2);
  EXPECT_EQ(ConnectTo(address.port), -1);
  close(last);
}

// Without what wakes its thread Stop() would wait for ever.
TEST(AcceptorDeathTest, NeedsADescriptorToBeStopped) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizers look at memory through pipes, for which no descriptor is left";
#endif
  const auto open_without_files = [] {
    const rlimit none{3, 3};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0) exit(3);
    exit(absl::IsUnavailable(Acceptor::Create({}, "a port", nullptr).status()) ? 0 : 1);
  };
  EXPECT_EXIT(open_without_files(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace sru::server::transport
