#include "server/transport/connection_guard.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/poll.h"
#include "tests/testing/tcp_pair.h"

namespace sru::server::transport {
namespace {

using ::sru::testing::TcpPair;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kKib = int64_t{1} << 10;
constexpr int64_t kMib = int64_t{1} << 20;
constexpr absl::Duration kStep = absl::Milliseconds(100);

// Connections whose counters a test moves; every Look() is kStep after the last.
class ConnectionJudgeTest : public ::testing::Test {
 protected:
  static GuardLimits Limits() {
    GuardLimits limits;
    limits.base_bytes = 1000 * kMib;
    limits.receive_bytes = 100 * kMib;
    return limits;
  }

  ConnectionLook& At(uint64_t id) {
    for (ConnectionLook& look : looks_) {
      if (look.id == id) return look;
    }
    looks_.emplace_back().id = id;
    return looks_.back();
  }
  // What is read is answered by `answered` bytes, if any.
  void Read(uint64_t id, int64_t bytes, int64_t answered = 0) {
    ReadPart(id, bytes, answered);
    At(id).delivered += bytes;
  }
  // It is no whole message.
  void ReadPart(uint64_t id, int64_t bytes, int64_t answered) {
    At(id).read += bytes;
    At(id).sent += answered;
  }
  // The connections that are to be closed, in the order of the verdicts.
  std::vector<uint64_t> Look(int64_t held = 0, int64_t inflight = 0) {
    now_ += kStep;
    std::vector<uint64_t> ids;
    const auto memory = [&] {
      ++memory_looks_;
      return MemoryLook{held, inflight};
    };
    for (const ConnectionVerdict& verdict : judge_.Judge(now_, looks_, memory)) {
      ids.push_back(verdict.id);
      reason_ = verdict.reason;
      unanswered_ = verdict.unanswered;
      unfinished_ = verdict.unfinished;
    }
    return ids;
  }

  std::vector<ConnectionLook> looks_;
  absl::Duration now_ = absl::Hours(1);
  ConnectionJudge judge_{Limits()};
  CloseReason reason_ = CloseReason::kMemory;
  int64_t unanswered_ = 0;
  int64_t unfinished_ = 0;
  int memory_looks_ = 0;
};

TEST_F(ConnectionJudgeTest, WhoIsAnsweredMayGoOn) {
  // 800 MB/s with a window update now and then, calls that are refused, and one that is silent.
  At(3);
  for (int i = 0; i < 600; ++i) {
    Read(1, 80 * kMib, 13);
    At(1).waiting = 500 * kKib;
    Read(2, 100 * kKib, 200 * kKib);
    At(2).waiting = 10;
    EXPECT_THAT(Look(2000 * kMib), IsEmpty());
  }
}

TEST_F(ConnectionJudgeTest, UploadsOnSlowNetworksMayGoOn) {
  // The server waits for data, not the data for the server, and a ping goes out every ten seconds.
  for (int i = 0; i < 600; ++i) {
    Read(1, 500 * kKib, i % 100 == 99 ? 17 : 0);
    EXPECT_THAT(Look(), IsEmpty()) << i;
  }
}

TEST_F(ConnectionJudgeTest, WhatNoUploadMaySendIsUnanswered) {
  Read(1, 0, 52);
  EXPECT_THAT(Look(), IsEmpty());
  for (int i = 0; i < 6; ++i) {
    Read(1, 10 * kMib);
    Read(2, kMib, 100);
    EXPECT_THAT(Look(), IsEmpty());
  }
  Read(1, 10 * kMib);
  EXPECT_THAT(Look(), ElementsAre(1));
  EXPECT_EQ(reason_, CloseReason::kUnanswered);
  EXPECT_EQ(unanswered_, 70 * kMib);
}

TEST_F(ConnectionJudgeTest, ABurstMayBeAnsweredALittleLater) {
  Read(1, 0, 52);
  EXPECT_THAT(Look(), IsEmpty());
  Read(1, 100 * kMib);
  for (int i = 0; i < 4; ++i) EXPECT_THAT(Look(), IsEmpty());
  Read(1, 0, 13);
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(ConnectionJudgeTest, WhatCameBeforeTheFirstLookCounts) {
  Read(1, 70 * kMib);
  Read(2, 70 * kMib, 13);
  for (int i = 0; i < 5; ++i) EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(Look(), ElementsAre(1));
}

TEST_F(ConnectionJudgeTest, SilenceForLongerThanPingsTakeIsUnanswered) {
  Read(1, 0, 52);
  Read(2, 0, 52);
  EXPECT_THAT(Look(), IsEmpty());
  for (int i = 0; i < 149; ++i) {
    Read(1, 10 * kKib);
    Read(2, kKib);  // less than would be worth a word
    EXPECT_THAT(Look(), IsEmpty()) << i;
  }
  Read(1, 10 * kKib);
  EXPECT_THAT(Look(), ElementsAre(1));
  EXPECT_EQ(reason_, CloseReason::kUnanswered);
}

TEST_F(ConnectionJudgeTest, PartsOfMessagesThatFillTheQuotaAreClosedLargestFirst) {
  // Half of 100 MiB is too much; the server sends window updates. 1 and 2 hold parts, 3 uploads
  // whole messages, 4 holds little, 5 has just begun.
  const auto step = [&](int64_t held) {
    Read(3, 20 * kMib, 13);
    return Look(held);
  };
  ReadPart(1, 31 * kMib, 13);
  ReadPart(2, 15 * kMib, 13);
  ReadPart(4, 60 * kKib, 13);
  for (int i = 0; i < 20; ++i) EXPECT_THAT(step(1070 * kMib), IsEmpty()) << i;
  ReadPart(5, 5 * kMib, 13);
  EXPECT_THAT(step(1080 * kMib), ElementsAre(1));
  EXPECT_EQ(reason_, CloseReason::kUnfinished);
  EXPECT_EQ(unfinished_, 31 * kMib);
  looks_[0].id = 6;
  looks_[0].read = looks_[0].sent = 0;
  for (int i = 0; i < 20; ++i) EXPECT_THAT(step(1040 * kMib), IsEmpty()) << i;
}

TEST_F(ConnectionJudgeTest, APartMayBecomeAMessageInTime) {
  ReadPart(1, 60 * kMib, 13);
  EXPECT_THAT(Look(1080 * kMib), IsEmpty());
  for (int i = 0; i < 50; ++i) {
    // What began first is whole, and as much has begun.
    for (int j = 0; j < 2; ++j) {
      Read(1, 30 * kMib, 13);
      EXPECT_THAT(Look(1080 * kMib), IsEmpty()) << i;
    }
  }
  for (int i = 0; i < 5; ++i) {
    if (!Look(1080 * kMib).empty()) return;
  }
  FAIL() << "what stays a part is closed";
}

TEST_F(ConnectionJudgeTest, WhereTheQuotaIsNearlyFullNobodyWaits) {
  ReadPart(1, 10 * kMib, 13);
  ReadPart(2, 64 * kMib, 13);
  EXPECT_FALSE(judge_.is_filling());
  EXPECT_THAT(Look(1080 * kMib), IsEmpty());
  EXPECT_TRUE(judge_.is_filling());
  ReadPart(2, kMib, 13);
  EXPECT_THAT(Look(1080 * kMib), ElementsAre(2));
  EXPECT_EQ(reason_, CloseReason::kUnfinished);
}

TEST_F(ConnectionJudgeTest, PartsOfUploadsThatWereGivenUpTakeNoMemory) {
  ReadPart(1, 90 * kMib, 13);
  for (int i = 0; i < 20; ++i) EXPECT_THAT(Look(1020 * kMib), IsEmpty()) << i;
  EXPECT_THAT(Look(1046 * kMib), ElementsAre(1));
}

TEST_F(ConnectionJudgeTest, DeliveringTooMuchIsNoCredit) {
  ReadPart(1, kMib, 13);
  At(1).delivered += 500 * kMib;
  EXPECT_THAT(Look(1080 * kMib), IsEmpty());
  ReadPart(1, 90 * kMib, 13);
  int looks = 0;
  while (looks < 20 && Look(1080 * kMib).empty()) ++looks;
  EXPECT_LT(looks, 10);
}

TEST_F(ConnectionJudgeTest, WhoIsReadSlowlyStallsThoseThatAreNotRead) {
  Read(1, 0, 52);
  Read(2, 0, 52);
  Read(3, 0, 52);
  At(1).waiting = At(2).waiting = 100 * kKib;
  EXPECT_THAT(Look(), IsEmpty());
  for (int i = 0; i < 4; ++i) {
    Read(1, 60 * kKib);
    Read(3, 10 * kKib, 10);
    EXPECT_THAT(Look(), IsEmpty());
  }
  Read(1, 60 * kKib);
  EXPECT_THAT(Look(), ElementsAre(1));
  EXPECT_EQ(reason_, CloseReason::kStallsOthers);
  // The one that was not read is not at fault.
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(ConnectionJudgeTest, WhereNobodyIsStalledThereIsMoreTime) {
  Read(1, 0, 52);
  Read(2, 0, 52);
  At(1).waiting = 100 * kKib;
  EXPECT_THAT(Look(), IsEmpty());
  for (int i = 0; i < 39; ++i) {
    Read(1, 60 * kKib);
    Read(2, kKib, kKib);
    EXPECT_THAT(Look(), IsEmpty()) << i;
  }
  Read(1, 60 * kKib);
  EXPECT_THAT(Look(), ElementsAre(1));
}

TEST_F(ConnectionJudgeTest, AServerThatReadsNothingAtAllBlamesNobody) {
  // It waits for memory, or for the machine.
  for (const uint64_t id : {1, 2, 3}) {
    Read(id, 300 * kKib, 52);
    At(id).waiting = 100 * kKib;
  }
  for (int i = 0; i < 100; ++i) EXPECT_THAT(Look(), IsEmpty());
}

TEST_F(ConnectionJudgeTest, WithoutMemoryTheWorstGoFirst) {
  for (uint64_t id = 1; id <= 9; ++id) Read(id, 0, 52);
  EXPECT_THAT(Look(2000 * kMib), IsEmpty());
  for (int i = 0; i < 2; ++i) {
    for (uint64_t id = 1; id <= 8; ++id) Read(id, static_cast<int64_t>(id) * 50 * kKib);
    Read(9, 50 * kMib, 13);
    EXPECT_THAT(Look(1000 * kMib), IsEmpty());
  }
  // 100 MiB more are explained by what was read.
  EXPECT_THAT(Look(1100 * kMib), IsEmpty());
  EXPECT_THAT(Look(1101 * kMib), ElementsAre(8, 7));
  EXPECT_EQ(reason_, CloseReason::kMemory);
  looks_.erase(looks_.begin() + 6, looks_.begin() + 8);  // they are gone
  EXPECT_THAT(Look(1101 * kMib), ElementsAre(6, 5));
  looks_.erase(looks_.begin() + 4, looks_.begin() + 6);
  EXPECT_THAT(Look(1101 * kMib, 2 * kMib), IsEmpty());
}

TEST_F(ConnectionJudgeTest, LittleReadExplainsLittle) {
  Read(1, 0, 52);
  EXPECT_THAT(Look(), IsEmpty());
  Read(1, kMib);
  EXPECT_THAT(Look(1001 * kMib), IsEmpty());
  EXPECT_THAT(Look(1001 * kMib), IsEmpty());
  EXPECT_THAT(Look(1003 * kMib), ElementsAre(1));
}

TEST_F(ConnectionJudgeTest, WhatWasReadLongAgoExplainsNothing) {
  Read(1, 0, 52);
  Read(2, 40 * kMib, 52);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_GE(judge_.ExplainedBytes(), 1079 * kMib);
  for (int i = 0; i < 3000; ++i) Look();
  EXPECT_LT(judge_.ExplainedBytes(), 1001 * kMib);
}

TEST_F(ConnectionJudgeTest, MemoryIsLookedAtForSuspiciousConnectionsOnly) {
  for (int i = 0; i < 100; ++i) {
    Read(1, 10 * kMib, 13);
    Read(2, kKib, i % 10);
    EXPECT_THAT(Look(2000 * kMib), IsEmpty());
  }
  EXPECT_EQ(memory_looks_, 0);
}

TEST_F(ConnectionJudgeTest, WithoutABoundMemoryDoesNotMatter) {
  judge_.set_base_bytes(0);
  Read(1, 0, 52);
  EXPECT_THAT(Look(), IsEmpty());
  Read(1, 10 * kMib);
  for (int i = 0; i < 10; ++i) EXPECT_THAT(Look(int64_t{1} << 60), IsEmpty());
}

TEST_F(ConnectionJudgeTest, ConnectionsThatAreOwedSomethingAreOfInterest) {
  Read(1, kMib, 1);
  Read(2, 0, 1);
  Read(3, 0, 1);
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(judge_.of_interest(), IsEmpty());
  Read(1, 64 * kKib);
  Read(2, kKib);
  At(3).waiting = 1;
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(judge_.of_interest(), ::testing::UnorderedElementsAre(1, 3));
  Read(1, 0, 1);
  judge_.Forget(3);
  looks_.pop_back();
  EXPECT_THAT(Look(), IsEmpty());
  EXPECT_THAT(judge_.of_interest(), IsEmpty());
}

ino_t InodeOf(int fd) {
  struct stat status {};
  EXPECT_EQ(fstat(fd, &status), 0);
  return status.st_ino;
}

// Reads so many bytes, as the server does.
void Take(int socket, size_t bytes) {
  std::string text(bytes, '\0');
  ASSERT_EQ(recv(socket, text.data(), bytes, MSG_WAITALL), static_cast<ssize_t>(bytes));
}

ConnectionGuard::Options EagerGuard(std::atomic<int>* closed) {
  ConnectionGuard::Options options;
  options.interval = absl::Milliseconds(1);
  options.limits.unanswered_bytes = 1000;
  options.limits.unanswered_for = absl::Milliseconds(5);
  options.on_closed = [closed](CloseReason reason) {
    EXPECT_EQ(reason, CloseReason::kUnanswered);
    ++*closed;
  };
  return options;
}

TEST(ConnectionGuardTest, ClosesWhoIsAnsweredNothingAndNobodyElse) {
  const TcpPair bad;
  const TcpPair good;
  const TcpPair unread;
  std::atomic<int> closed{0};
  ConnectionGuard guard(EagerGuard(&closed));
  for (const TcpPair* pair : {&bad, &good, &unread}) {
    guard.Add(pair->server(), InodeOf(pair->server()), "ipv4:192.0.2.1:1");
  }
  const std::string text(2000, 'a');
  ASSERT_TRUE(TcpPair::Write(unread.client(), text));
  ASSERT_TRUE(TcpPair::Write(good.client(), "a call"));
  Take(good.server(), 6);
  ASSERT_TRUE(TcpPair::Write(good.server(), "an answer"));
  ASSERT_TRUE(TcpPair::Write(bad.client(), text));
  Take(bad.server(), text.size());
  ASSERT_TRUE(TcpPair::Write(bad.client(), text));  // waits to be read
  EXPECT_TRUE(testing::PollUntil([&] { return closed >= 1; }));
  // Nothing of what waited can be read any more.
  char byte = 0;
  EXPECT_LE(recv(bad.server(), &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_TRUE(TcpPair::IsReadable(bad.client()));
  EXPECT_EQ(TcpPair::Read(good.client()), "an answer");
  ASSERT_TRUE(TcpPair::Write(good.server(), "another"));
  EXPECT_EQ(TcpPair::Read(good.client()), "another");
  Take(unread.server(), text.size());
}

TEST(ConnectionGuardTest, ADescriptorThatIsAnotherSocketByNowIsLeftAlone) {
  const TcpPair pair;
  const TcpPair bad;
  std::atomic<int> closed{0};
  ConnectionGuard guard(EagerGuard(&closed));
  guard.Add(pair.server(), InodeOf(pair.server()) + 1, "ipv4:192.0.2.1:1");
  guard.Add(bad.server(), InodeOf(bad.server()), "ipv4:192.0.2.1:2");
  for (const TcpPair* one : {&pair, &bad}) {
    ASSERT_TRUE(TcpPair::Write(one->client(), std::string(2000, 'a')));
    Take(one->server(), 2000);
  }
  EXPECT_TRUE(testing::PollUntil([&] { return closed >= 1; }));
  ASSERT_TRUE(TcpPair::Write(pair.server(), "an answer"));
  EXPECT_EQ(TcpPair::Read(pair.client()), "an answer");
  EXPECT_EQ(closed, 1);
}

TEST(ConnectionGuardTest, ReadsTheMemoryOfTheProcess) {
  EXPECT_GT(ConnectionGuard::ResidentBytes(), kMib);
}

}  // namespace
}  // namespace sru::server::transport
