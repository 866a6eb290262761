#include "server/answer_group.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace sru::server {
namespace {

// Two ends of a TCP connection on loopback.
class AnswerGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any_address = reinterpret_cast<sockaddr*>(&address);
    ASSERT_EQ(bind(listener, any_address, size), 0);
    ASSERT_EQ(listen(listener, 1), 0);
    ASSERT_EQ(getsockname(listener, any_address, &size), 0);
    client_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ASSERT_EQ(connect(client_, any_address, size), 0);
    server_ = accept(listener, nullptr, nullptr);
    ASSERT_GE(server_, 0);
    close(listener);
  }
  void TearDown() override {
    close(client_);
    close(server_);
  }

  void Write(const std::string& text) {
    ASSERT_EQ(write(server_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // What is there for the client within `wait_ms`.
  std::string Read(int wait_ms) {
    pollfd ready{client_, POLLIN, 0};
    if (poll(&ready, 1, wait_ms) <= 0) return "";
    std::array<char, 64> buffer{};
    const ssize_t count = read(client_, buffer.data(), buffer.size());
    return count > 0 ? std::string(buffer.data(), static_cast<size_t>(count)) : "";
  }

  int client_ = -1;
  int server_ = -1;
};

TEST_F(AnswerGroupTest, WhatIsWrittenLeavesAtTheEnd) {
  {
    AnswerGroup group;
    group.Hold(server_);
    group.Hold(server_);
    Write("one ");
    Write("two");
    EXPECT_EQ(Read(/*wait_ms=*/20), "");
  }
  EXPECT_EQ(Read(/*wait_ms=*/5000), "one two");
  Write("three");
  EXPECT_EQ(Read(/*wait_ms=*/5000), "three");
}

TEST_F(AnswerGroupTest, OthersAreNotHeld) {
  AnswerGroup group;
  group.Hold(-1);
  group.Hold(STDERR_FILENO);
  Write("at once");
  EXPECT_EQ(Read(/*wait_ms=*/5000), "at once");
}

TEST_F(AnswerGroupTest, SurvivesTheEndOfTheConnection) {
  AnswerGroup group;
  group.Hold(server_);
  close(server_);
  server_ = -1;
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
}  // namespace sru::server
