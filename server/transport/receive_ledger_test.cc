#include "server/transport/receive_ledger.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::transport {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Account = ReceiveLedger::Account;

class ReceiveLedgerTest : public ::testing::Test {
 protected:
  std::shared_ptr<Account> Open(const std::string& peer) {
    std::shared_ptr<Account> account = ledger_->Open(peer);
    account->set_close([this, peer] { closed_.push_back(peer); });
    return account;
  }
  static ReceiveLedger::Options Limit(int64_t bytes) {
    ReceiveLedger::Options options;
    options.limit_bytes = bytes;
    return options;
  }

  absl::Duration now_ = absl::Hours(1);
  std::vector<std::string> closed_;
  std::vector<int64_t> held_;
  std::shared_ptr<ReceiveLedger> ledger_ = [this] {
    ReceiveLedger::Options options = Limit(1000);
    options.now = [this] { return now_; };
    options.on_closed = [this](const std::string& peer, int64_t held) {
      EXPECT_EQ(peer, closed_.back());
      held_.push_back(held);
    };
    return ReceiveLedger::Create(std::move(options));
  }();
};

TEST_F(ReceiveLedgerTest, CountsWhatIsHeld) {
  const auto a = Open("a");
  const auto b = Open("b");
  a->Add(600);
  b->Add(400);
  EXPECT_EQ(ledger_->held_bytes(), 1000);
  a->Free(600);
  b->Free(100);
  EXPECT_EQ(ledger_->held_bytes(), 300);
  for (int i = 0; i < 100; ++i) {
    a->Add(700);
    a->Free(700);
  }
  EXPECT_THAT(closed_, IsEmpty());
}

TEST_F(ReceiveLedgerTest, WhoHoldsMostForLongIsClosed) {
  const auto idle = Open("idle");
  const auto uploads = Open("uploads");
  const auto small = Open("small");
  idle->Add(200);
  small->Add(100);
  for (int i = 0; i < 20; ++i) {
    now_ += absl::Milliseconds(100);
    uploads->Add(700);
    EXPECT_THAT(closed_, IsEmpty());
    uploads->Free(700);
  }
  now_ += absl::Milliseconds(100);
  uploads->Add(701);
  EXPECT_THAT(closed_, ElementsAre("idle", "small"));
  EXPECT_THAT(held_, ElementsAre(200, 100));
  EXPECT_EQ(ledger_->held_bytes(), 701);
  // What they held is let go later, and no longer counted.
  idle->Free(200);
  small->Add(50);
  EXPECT_EQ(ledger_->held_bytes(), 701);
}

TEST_F(ReceiveLedgerTest, TheLargestIsClosedWhereNothingIsOld) {
  const auto a = Open("a");
  const auto b = Open("b");
  a->Add(400);
  b->Add(599);
  now_ += absl::Milliseconds(50);
  a->Add(2);
  EXPECT_THAT(closed_, ElementsAre("b"));
  EXPECT_EQ(ledger_->held_bytes(), 402);
}

TEST_F(ReceiveLedgerTest, TellsUntilItIsToldNotTo) {
  const auto a = Open("a");
  ledger_->StopTelling();
  a->Add(1001);
  EXPECT_THAT(closed_, ElementsAre("a"));
  EXPECT_THAT(held_, IsEmpty());
}

TEST_F(ReceiveLedgerTest, AQuarterMakesRoom) {
  std::vector<std::shared_ptr<Account>> accounts;
  for (int i = 0; i < 100; ++i) {
    accounts.push_back(Open(std::to_string(i)));
    accounts.back()->Add(10);
  }
  EXPECT_THAT(closed_, IsEmpty());
  now_ += absl::Seconds(1);
  accounts.front()->Add(1);
  EXPECT_EQ(closed_.size(), 26);
  EXPECT_LE(ledger_->held_bytes(), 750);
}

TEST_F(ReceiveLedgerTest, WhatAConnectionHeldGoesWithIt) {
  auto a = Open("a");
  a->Add(500);
  a.reset();
  EXPECT_EQ(ledger_->held_bytes(), 0);
  auto b = Open("b");
  b->Add(1001);
  EXPECT_THAT(closed_, ElementsAre("b"));
  b.reset();
  EXPECT_EQ(ledger_->held_bytes(), 0);
}

TEST(ReceiveLedgerThreadsTest, CountsOnManyThreads) {
  std::atomic<int64_t> time{0};
  ReceiveLedger::Options options;
  options.limit_bytes = 5000;
  options.now = [&] { return absl::Microseconds(++time); };
  const auto ledger = ReceiveLedger::Create(std::move(options));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&ledger, t] {
      for (int i = 0; i < 200; ++i) {
        auto account = ledger->Open(std::to_string(t));
        account->set_close([] {});
        for (int j = 0; j < 10; ++j) account->Add(200);
        for (int j = 0; j < 9 + i % 2; ++j) account->Free(200);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ledger->held_bytes(), 0);
}

}  // namespace
}  // namespace sru::server::transport
