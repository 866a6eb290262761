#include "server/calls/kinds/call.h"

#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "gtest/gtest.h"
#include "server/base/interruption.h"
#include "server/calls/method.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/puppet_exchange.h"

namespace sru::server::calls {
namespace {

using ::sru::testing::PuppetExchange;

class CallTest : public ::testing::Test {
 protected:
  // Takes a message whose parsing asks whether it is still wanted, while `meanwhile_` happens.
  class TakingCall final : public Call {
   public:
    TakingCall(CallTest* test, Exchange* exchange)
        : Call(MethodId::kClassify, test->context_, exchange), test_(*test) {}
    void OnMessage(std::optional<absl::Cord> /*message*/) override {
      test_.status_ = TakeMessage([this] {
        EXPECT_FALSE(Interruption::Asked());
        test_.meanwhile_();
        return Interruption::Asked() ? absl::CancelledError("the caller has left")
                                     : absl::OkStatus();
      });
      EXPECT_FALSE(Interruption::Asked());
    }
    void OnCancel() override {}

   private:
    CallTest& test_;
  };

  CallTest() {
    context_.metrics = &metrics_;
    context_.budget = &budget_;
    context_.clock = &clock_;
    context_.streams = &streams_;
    Method row;
    row.service = "t.T";
    row.name = "Takes";
    row.start = [this](Exchange* exchange) -> CallHandler* {
      return new TakingCall(this, exchange);
    };
    exchange_.Start(row);
  }

  FakeClock clock_;
  telemetry::Metrics metrics_{&clock_};
  ByteBudget budget_{1 << 20};
  OpenStreams streams_{1};
  ServiceContext context_;
  PuppetExchange exchange_;
  std::function<void()> meanwhile_;
  absl::Status status_;
};

TEST_F(CallTest, AMessageIsParsedToItsEnd) {
  meanwhile_ = [] {};
  exchange_.BringEnd();
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(CallTest, ParsingEndsWhenTheCallerLeaves) {
  meanwhile_ = [this] { exchange_.Cancel(); };
  exchange_.BringEnd();
  EXPECT_EQ(status_, absl::CancelledError("the caller has left"));
}

TEST_F(CallTest, WhatIsReadSoonIsNotEndedByADrain) {
  meanwhile_ = [this] { streams_.Drain(); };
  exchange_.BringEnd();
  EXPECT_TRUE(status_.ok()) << status_;
}

TEST_F(CallTest, LongParsingEndsAtADrainAndTheCallMayGoElsewhere) {
  meanwhile_ = [this] {
    streams_.Drain();
    clock_.Advance(kLongParsing);
  };
  exchange_.BringEnd();
  EXPECT_TRUE(absl::IsUnavailable(status_)) << status_;
}

}  // namespace
}  // namespace sru::server::calls
