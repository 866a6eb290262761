#include "server/transport/read_pause.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/testing/tcp_pair.h"

namespace sru::server::transport {
namespace {

using ::sru::testing::TcpPair;

bool IsCorked(int socket) {
  int cork = -1;
  socklen_t size = sizeof(cork);
  EXPECT_EQ(getsockopt(socket, IPPROTO_TCP, TCP_CORK, &cork, &size), 0);
  return cork == 1;
}

TEST(ReadPauseTest, WhatArrivesIsReadWhenThePauseEnds) {
  const TcpPair pair;
  auto pause = std::make_unique<ReadPause>(absl::InfiniteDuration());
  pause->Start(pair.server());
  pause->Start(pair.server());
  ASSERT_TRUE(TcpPair::Write(pair.client(), "one "));
  ASSERT_TRUE(TcpPair::Write(pair.client(), "two"));
  EXPECT_TRUE(TcpPair::StaysQuiet(pair.server()));
  pause.reset();
  EXPECT_EQ(TcpPair::Read(pair.server()), "one two");
  ASSERT_TRUE(TcpPair::Write(pair.client(), "three"));
  EXPECT_EQ(TcpPair::Read(pair.server()), "three");
}

TEST(ReadPauseTest, EndsByItself) {
  const TcpPair pair;
  ReadPause pause(absl::Milliseconds(5));
  for (const std::string text : {"first", "second"}) {
    pause.Start(pair.server());
    ASSERT_TRUE(TcpPair::Write(pair.client(), text));
    EXPECT_EQ(TcpPair::Read(pair.server()), text);
  }
}

TEST(ReadPauseTest, WhatIsWrittenLeavesWhenThePauseEnds) {
  const TcpPair pair;
  auto pause = std::make_unique<ReadPause>(absl::InfiniteDuration());
  pause->Start(pair.server());
  EXPECT_TRUE(IsCorked(pair.server()));
  ASSERT_TRUE(TcpPair::Write(pair.server(), "one "));
  ASSERT_TRUE(TcpPair::Write(pair.server(), "two"));
  pause.reset();
  EXPECT_FALSE(IsCorked(pair.server()));
  EXPECT_EQ(TcpPair::Read(pair.client()), "one two");
  ASSERT_TRUE(TcpPair::Write(pair.server(), "three"));
  EXPECT_EQ(TcpPair::Read(pair.client()), "three");
}

TEST(ReadPauseTest, MuchDataIsReadAtOnce) {
  const TcpPair pair;
  ReadPause pause(absl::InfiniteDuration());
  pause.Start(pair.server());
  ASSERT_TRUE(TcpPair::Write(pair.client(), std::string(kPauseBytes, 'a')));
  EXPECT_NE(TcpPair::Read(pair.server()), "");
}

TEST(ReadPauseTest, TheEndOfTheConnectionIsSeenAtOnce) {
  TcpPair pair;
  ReadPause pause(absl::InfiniteDuration());
  pause.Start(pair.client());
  pair.CloseServer();
  EXPECT_TRUE(TcpPair::IsReadable(pair.client()));
}

TEST(ReadPauseTest, OthersAreNotPaused) {
  const TcpPair paused;
  const TcpPair other;
  ReadPause pause(absl::InfiniteDuration());
  pause.Start(-1);
  pause.Start(STDERR_FILENO);
  pause.Start(paused.server());
  ASSERT_TRUE(TcpPair::Write(other.client(), "at once"));
  EXPECT_EQ(TcpPair::Read(other.server()), "at once");
}

// A descriptor that was closed and is somebody else's by now.
TEST(ReadPauseTest, WhatIsNoTcpSocketIsLeftAlone) {
  for (const int domain : {AF_INET, AF_UNIX}) {
    const int socket = ::socket(domain, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ASSERT_GE(socket, 0);
    ReadPause pause(absl::InfiniteDuration());
    pause.Start(socket);
    int mark = 0;
    socklen_t size = sizeof(mark);
    ASSERT_EQ(getsockopt(socket, SOL_SOCKET, SO_RCVLOWAT, &mark, &size), 0);
    EXPECT_EQ(mark, 1);
    close(socket);
  }
}

TEST(ReadPauseTest, WithoutALengthThereIsNone) {
  const TcpPair pair;
  ReadPause pause(absl::ZeroDuration());
  pause.Start(pair.server());
  ASSERT_TRUE(TcpPair::Write(pair.client(), "at once"));
  EXPECT_EQ(TcpPair::Read(pair.server()), "at once");
}

}  // namespace
}  // namespace sru::server::transport
