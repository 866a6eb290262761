#include "server/calls/kinds/call.h"

#include <functional>
#include <list>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/cord.h"
#include "gtest/gtest.h"
#include "server/base/interruption.h"
#include "server/callers/callers.h"
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

  class OpeningCall final : public Call {
   public:
    OpeningCall(CallTest* test, Exchange* exchange)
        : Call(MethodId::kGenerate, test->context_, exchange), test_(*test) {}
    void OnMessage(std::optional<absl::Cord> /*message*/) override { test_.status_ = Open(); }
    void OnCancel() override {}

   private:
    CallTest& test_;
  };

  class AskingCall final : public Call {
   public:
    AskingCall(CallTest* test, Exchange* exchange)
        : Call(MethodId::kClassify, test->context_, exchange), test_(*test) {}
    void OnMessage(std::optional<absl::Cord> /*message*/) override {
      test_.priority_ = PriorityOf(test_.asked_);
      End(absl::OkStatus());
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
  v1::Priority asked_ = v1::PRIORITY_UNSPECIFIED;
  absl::StatusOr<batching::Priority> priority_;
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

TEST_F(CallTest, WithoutAPriorityACallerHasWhatItMayHave) {
  telemetry::AccessLog log({telemetry::LogRequests::kNone, 0, false}, &clock_);
  context_.access_log = &log;
  callers::Callers callers({}, &clock_);
  Method row;
  row.service = "t.T";
  row.name = "Asks";
  row.start = [this](Exchange* exchange) -> CallHandler* { return new AskingCall(this, exchange); };
  const auto priority = [&](const std::string& limits, v1::Priority asked) {
    PuppetExchange exchange;
    exchange.from =
        callers.WithLimits("name " + limits, "a", *callers::ParseLimitsFlag("f", limits));
    asked_ = asked;
    exchange.Start(row);
    exchange.BringEnd();
    return priority_;
  };
  EXPECT_EQ(*priority("highest_priority=low", v1::PRIORITY_UNSPECIFIED), batching::Priority::kLow);
  EXPECT_EQ(*priority("highest_priority=high", v1::PRIORITY_UNSPECIFIED),
            batching::Priority::kNormal);
  EXPECT_TRUE(
      absl::IsPermissionDenied(priority("highest_priority=low", v1::PRIORITY_NORMAL).status()));
}

TEST_F(CallTest, EachCallerHasItsShareOfStreamsWhateverItsAddress) {
  OpenStreams streams(OpenStreams::kLeastShared);
  context_.streams = &streams;
  callers::Callers callers({}, &clock_);
  Method row;
  row.start = [this](Exchange* exchange) -> CallHandler* {
    return new OpeningCall(this, exchange);
  };
  std::list<PuppetExchange> exchanges;  // all of one address
  const auto open = [&](callers::CallerPtr caller) {
    exchanges.emplace_back().from = std::move(caller);
    exchanges.back().Start(row);
    exchanges.back().BringEnd();
    return status_.code();
  };
  const callers::CallerPtr a = callers.WithLimits("name a", "a", {});
  EXPECT_EQ(open(a), absl::StatusCode::kOk);
  EXPECT_EQ(open(a), absl::StatusCode::kOk);
  EXPECT_EQ(open(a), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(open(callers.WithLimits("name b", "b", {})), absl::StatusCode::kOk);
  // A certificate may bear the name of those who cannot be told apart.
  const callers::CallerPtr named = callers.ByCertificate(callers::kAnonymous);
  EXPECT_EQ(open(named), absl::StatusCode::kOk);
  EXPECT_EQ(open(named), absl::StatusCode::kOk);
  EXPECT_EQ(open(named), absl::StatusCode::kResourceExhausted);
  const callers::CallerPtr anybody = callers.ByAddress(callers::kAnonymous);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(open(anybody), absl::StatusCode::kOk);
  EXPECT_EQ(streams.count(), streams.limit());
}

}  // namespace
}  // namespace sru::server::calls
