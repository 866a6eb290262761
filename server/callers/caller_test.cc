#include "server/callers/caller.h"

#include <map>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"
#include "tests/testing/fake_clock.h"

namespace sru::server::callers {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr calls::MethodId kClassify = calls::MethodId::kClassify;
constexpr calls::MethodId kGenerate = calls::MethodId::kGenerate;

class CallerTest : public ::testing::Test {
 protected:
  CallerPtr Make(const std::string& limits) {
    absl::StatusOr<CallerLimits> parsed = ParseLimitsFlag("caller_limits", limits);
    EXPECT_TRUE(parsed.ok()) << parsed.status();
    return std::make_shared<Caller>("name search", "search", true, *parsed, others_, &clock_);
  }

  FakeClock clock_;
  const std::shared_ptr<CallerCounts> others_ = std::make_shared<CallerCounts>();
};

TEST_F(CallerTest, WithoutLimitsAllPasses) {
  const CallerPtr caller = Make("");
  Lease leases[3];
  for (Lease& lease : leases) EXPECT_TRUE(lease.Enter(caller, kGenerate).ok());
  EXPECT_TRUE(caller->Charge(1000000000).ok());
  EXPECT_TRUE(caller->Charge(1).ok());
  EXPECT_TRUE(caller->CheckModel("any").ok());
  EXPECT_TRUE(caller->RateLimitHeaders().empty());
}

TEST_F(CallerTest, ABalanceGrowsToTheBurst) {
  const CallerPtr caller = Make("tokens_per_second=100 burst=300");
  EXPECT_TRUE(caller->Charge(299).ok());
  EXPECT_TRUE(caller->Charge(1).ok());
  const absl::Status refusal = caller->Charge(1);
  EXPECT_EQ(refusal.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refusal.message()),
              AllOf(HasSubstr("'search'"), HasSubstr("100 a second"), HasSubstr("300 at once")));
  // After the delay there is one.
  clock_.Advance(*RetryAfterOf(refusal));
  EXPECT_TRUE(caller->Check(kClassify).ok());
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(caller->Charge(300).ok());
  EXPECT_FALSE(caller->Check(kClassify).ok());
}

TEST_F(CallerTest, ACallMayOverdrawAndIsPaidBack) {
  const CallerPtr caller = Make("tokens_per_second=100");
  EXPECT_TRUE(caller->Charge(100 + 250).ok());
  EXPECT_EQ(RetryAfterOf(caller->Check(kClassify)).value(), absl::Milliseconds(2501));
  clock_.Advance(absl::Seconds(2));
  EXPECT_FALSE(caller->Check(kClassify).ok());
  clock_.Advance(absl::Milliseconds(501));
  EXPECT_TRUE(caller->Check(kClassify).ok());
  // Unneeded tokens come back; generated ones are charged even beyond the balance.
  EXPECT_TRUE(caller->Charge(100).ok());
  caller->Settle(-100);
  EXPECT_TRUE(caller->Check(kClassify).ok());
  caller->Settle(1000);
  EXPECT_FALSE(caller->Check(kClassify).ok());
}

TEST_F(CallerTest, CallsAndStreamsHavePlaces) {
  const CallerPtr caller = Make("calls_in_flight=2 open_streams=1");
  Lease first;
  EXPECT_TRUE(first.Enter(caller, kGenerate).ok());
  {
    Lease second;
    EXPECT_THAT(std::string(second.Enter(caller, kGenerate).message()),
                HasSubstr("1 open streams"));
    EXPECT_TRUE(second.Enter(caller, kClassify).ok());
    Lease third;
    const absl::Status refusal = third.Enter(caller, kClassify);
    EXPECT_TRUE(absl::IsResourceExhausted(refusal));
    EXPECT_TRUE(RetryAfterOf(refusal).has_value());
    EXPECT_EQ(caller->in_flight(), 2);
    // A lookup takes no place.
    EXPECT_TRUE(third.Enter(caller, calls::MethodId::kListModels).ok());
  }
  EXPECT_EQ(caller->in_flight(), 1);
  first.Leave();
  first.Leave();
  EXPECT_EQ(caller->in_flight(), 0);
}

TEST_F(CallerTest, RefusesWhatItMayNotUse) {
  const CallerPtr caller = Make("methods=Classify models=trec,lm");
  EXPECT_TRUE(caller->Check(kClassify).ok());
  const absl::Status refusal = caller->Check(kGenerate);
  EXPECT_TRUE(absl::IsPermissionDenied(refusal));
  EXPECT_THAT(std::string(refusal.message()),
              AllOf(HasSubstr("Generate"), HasSubstr("it may call Classify")));
  EXPECT_FALSE(RetryAfterOf(refusal).has_value());
  EXPECT_TRUE(caller->Check(calls::MethodId::kListModels).ok());
  EXPECT_TRUE(caller->CheckModel("lm").ok());
  EXPECT_THAT(std::string(caller->CheckModel("sst2").message()), HasSubstr("may not use 'sst2'"));
  // High priority has to be given.
  EXPECT_TRUE(caller->CheckPriority(batching::Priority::kNormal).ok());
  const absl::Status high = caller->CheckPriority(batching::Priority::kHigh);
  EXPECT_TRUE(absl::IsPermissionDenied(high));
  EXPECT_THAT(std::string(high.message()), HasSubstr("priority: "));
  EXPECT_TRUE(Make("highest_priority=high")->CheckPriority(batching::Priority::kHigh).ok());
  const CallerPtr low = Make("highest_priority=low");
  EXPECT_FALSE(low->CheckPriority(batching::Priority::kNormal).ok());
  EXPECT_EQ(low->highest_priority(), batching::Priority::kLow);
}

TEST_F(CallerTest, NewLimitsHoldAtOnce) {
  const CallerPtr caller = Make("tokens_per_second=100");
  EXPECT_TRUE(caller->Charge(1000).ok());
  Lease lease;
  caller->SetLimits(*ParseLimitsFlag("f", "calls_in_flight=1 weight=3"));
  EXPECT_EQ(caller->weight(), 3);
  EXPECT_TRUE(lease.Enter(caller, kClassify).ok());
  Lease other;
  EXPECT_FALSE(other.Enter(caller, kClassify).ok());
  // A debt survives a change of the rate, and a limit that is new starts with all of its burst.
  caller->SetLimits(*ParseLimitsFlag("f", "tokens_per_second=10"));
  EXPECT_TRUE(caller->Charge(1000).ok());
  caller->SetLimits(*ParseLimitsFlag("f", "tokens_per_second=20"));
  EXPECT_FALSE(caller->Charge(1).ok());
}

TEST_F(CallerTest, HeadersSayWhatIsLeft) {
  const CallerPtr caller = Make("tokens_per_second=100 burst=400 calls_in_flight=5");
  Lease lease;
  EXPECT_TRUE(lease.Enter(caller, kClassify).ok());
  EXPECT_TRUE(caller->Charge(150).ok());
  std::map<std::string, std::string> headers;
  for (const auto& [name, value] : caller->RateLimitHeaders()) headers[name] = value;
  const std::map<std::string, std::string> expected = {
      {"x-ratelimit-limit-requests", "5"},     {"x-ratelimit-remaining-requests", "4"},
      {"x-ratelimit-reset-requests", "0s"},    {"x-ratelimit-limit-tokens", "400"},
      {"x-ratelimit-remaining-tokens", "250"}, {"x-ratelimit-reset-tokens", "1.5s"}};
  EXPECT_EQ(headers, expected);
}

TEST_F(CallerTest, CountsApartOrAmongOthers) {
  const CallerPtr caller = Make("");
  caller->OnEnd(absl::OkStatus(), 7);
  caller->CountApart(true);
  caller->OnEnd(absl::ResourceExhaustedError(""), 0);
  caller->OnEnd(absl::OkStatus(), 5);
  EXPECT_EQ(others_->calls, 1);
  EXPECT_EQ(others_->tokens, 7);
  EXPECT_EQ(caller->counts().calls, 2);
  EXPECT_EQ(caller->counts().tokens, 5);
  EXPECT_EQ(caller->counts().refused, 1);
}

}  // namespace
}  // namespace sru::server::callers
