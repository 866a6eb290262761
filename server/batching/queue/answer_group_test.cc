#include "server/batching/queue/answer_group.h"

#include <unistd.h>

#include <thread>

#include "gtest/gtest.h"
#include "tests/testing/tcp_pair.h"

namespace sru::server::batching {
namespace {

using ::sru::testing::TcpPair;

TEST(AnswerGroupTest, WhatIsWrittenLeavesAtTheEnd) {
  const TcpPair pair;
  {
    AnswerGroup group;
    group.Hold(pair.server());
    group.Hold(pair.server());
    ASSERT_TRUE(TcpPair::Write(pair.server(), "one "));
    ASSERT_TRUE(TcpPair::Write(pair.server(), "two"));
    EXPECT_TRUE(TcpPair::StaysQuiet(pair.client()));
  }
  EXPECT_EQ(TcpPair::Read(pair.client()), "one two");
  ASSERT_TRUE(TcpPair::Write(pair.server(), "three"));
  EXPECT_EQ(TcpPair::Read(pair.client()), "three");
}

TEST(AnswerGroupTest, OthersAreNotHeld) {
  const TcpPair pair;
  AnswerGroup group;
  group.Hold(-1);
  group.Hold(STDERR_FILENO);
  ASSERT_TRUE(TcpPair::Write(pair.server(), "at once"));
  EXPECT_EQ(TcpPair::Read(pair.client()), "at once");
}

TEST(AnswerGroupTest, SurvivesTheEndOfTheConnection) {
  TcpPair pair;
  AnswerGroup group;
  group.Hold(pair.server());
  pair.CloseServer();
}

TEST(AnswerGroupCurrentTest, IsTheInnermostOfTheThread) {
  EXPECT_EQ(AnswerGroup::Current(), nullptr);
  {
    AnswerGroup outer;
    {
      AnswerGroup inner;
      EXPECT_EQ(AnswerGroup::Current(), &inner);
      std::thread([] { EXPECT_EQ(AnswerGroup::Current(), nullptr); }).join();
    }
    EXPECT_EQ(AnswerGroup::Current(), &outer);
  }
  EXPECT_EQ(AnswerGroup::Current(), nullptr);
}

}  // namespace
}  // namespace sru::server::batching
