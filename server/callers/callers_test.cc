#include "server/callers/callers.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/fake_clock.h"

namespace sru::server::callers {
namespace {

std::map<std::string, Callers::Level> ByName(Callers* callers) {
  std::map<std::string, Callers::Level> levels;
  for (Callers::Level& level : callers->Levels()) {
    const std::string name = level.name;
    EXPECT_TRUE(levels.emplace(name, std::move(level)).second) << name;
  }
  return levels;
}

TEST(CallersTest, OneCallerIsOneObject) {
  const FakeClock clock;
  Callers callers({}, &clock);
  EXPECT_EQ(callers.ByAddress("10.0.0.1"), callers.ByAddress("10.0.0.1"));
  EXPECT_NE(callers.ByAddress("10.0.0.1"), callers.ByAddress("10.0.0.2"));
  EXPECT_NE(callers.ByCertificate("web"), callers.WithLimits("name web", "web", {}));
  EXPECT_EQ(callers.ByCertificate("web")->name(), "web");
  EXPECT_EQ(callers.ByCertificate("J\xc3\xb6rg")->name(), "J\xc3\xb6rg");
  EXPECT_EQ(callers.ByCertificate("J\xf6rg")->name(), R"(J\xf6rg)");
  EXPECT_TRUE(callers.ByCertificate("web")->is_proven());
  EXPECT_FALSE(callers.ByAddress("web")->is_proven());
}

TEST(CallersTest, CallersWithoutLimitsHaveThoseOfAll) {
  const FakeClock clock;
  Callers callers(*ParseLimitsFlag("f", "calls_in_flight=1"), &clock);
  const CallerPtr caller = callers.ByAddress("10.0.0.1");
  Lease one;
  Lease two;
  EXPECT_TRUE(one.Enter(caller, calls::MethodId::kClassify).ok());
  EXPECT_FALSE(two.Enter(caller, calls::MethodId::kClassify).ok());
  EXPECT_TRUE(two.Enter(callers.WithLimits("name a", "a", {}), calls::MethodId::kClassify).ok());
}

TEST(CallersTest, TheBusiestAreNamedAndNoCountGoesBack) {
  FakeClock clock;
  Callers callers({}, &clock);
  // As many as have names come first, and are idle then.
  for (size_t i = 0; i < Callers::kNamed; ++i) {
    callers.ByAddress(absl::StrCat("early ", i))->OnEnd(absl::OkStatus(), 1);
  }
  EXPECT_EQ(ByName(&callers).count("other"), 0u);
  const CallerPtr busy = callers.ByCertificate("busy");
  busy->OnEnd(absl::OkStatus(), 1000);
  std::map<std::string, Callers::Level> levels = ByName(&callers);
  EXPECT_EQ(levels.size(), Callers::kNamed + 1);
  EXPECT_EQ(levels.at("other").tokens, 1000) << "it had no name yet";
  EXPECT_EQ(levels.at("busy").tokens, 0);
  busy->OnEnd(absl::ResourceExhaustedError(""), 0);
  levels = ByName(&callers);
  EXPECT_EQ(levels.at("busy").refused, 1);
  EXPECT_EQ(levels.at("other").tokens, 1000);
}

TEST(CallersTest, TenThousandNamesMakeFewSeriesAndAreForgotten) {
  FakeClock clock;
  Callers callers({}, &clock);
  const CallerPtr held = callers.ByAddress("held");
  int64_t total = 0;
  for (int i = 0; i < 10000; ++i) {
    clock.Advance(absl::Milliseconds(1));
    const int64_t tokens = i == 9999 ? 1000000 : i;
    callers.ByAddress(absl::StrCat("10.", i / 256, ".", i % 256, ".1"))
        ->OnEnd(absl::OkStatus(), tokens);
    total += tokens;
    if (i % 1000 == 0) {
      EXPECT_LE(callers.Levels().size(), Callers::kNamed + 1);
    }
  }
  const std::map<std::string, Callers::Level> levels = ByName(&callers);
  EXPECT_EQ(levels.size(), Callers::kNamed + 1);
  EXPECT_EQ(levels.count("10.39.15.1"), 1u) << "the last one is the busiest";
  EXPECT_GT(levels.at("other").tokens, total / 2);
  EXPECT_EQ(callers.ByAddress("held"), held) << "it was forgotten while it was in use";
}

TEST(CallersTest, TokensWithoutANameAreShownTogether) {
  const FakeClock clock;
  Callers callers({}, &clock);
  callers.WithLimits("digest 1", "", {})->OnEnd(absl::OkStatus(), 1);
  callers.WithLimits("digest 2", "", {})->OnEnd(absl::OkStatus(), 2);
  const std::vector<Callers::Level> levels = callers.Levels();
  ASSERT_EQ(levels.size(), 1u);
  EXPECT_EQ(levels[0].name, "unnamed");
  EXPECT_EQ(levels[0].tokens, 3);
}

TEST(CallersTest, CountsOfTokensWithoutANameOnlyGrow) {
  const FakeClock clock;
  Callers callers({}, &clock);
  callers.WithLimits("digest 1", "", {})->OnEnd(absl::OkStatus(), 1);
  callers.WithLimits("digest 2", "", {})->OnEnd(absl::OkStatus(), 2);
  EXPECT_EQ(ByName(&callers).at("unnamed").tokens, 3);
  for (size_t i = 0; i < 2 * Callers::kNamed; ++i) {
    callers.WithLimits(absl::StrCat("name ", i), absl::StrCat(i), {})->OnEnd(absl::OkStatus(), 99);
  }
  EXPECT_EQ(ByName(&callers).at("unnamed").tokens, 3);
}

TEST(CallersTest, ACallerMayBeCalledOther) {
  const FakeClock clock;
  Callers callers({}, &clock);
  callers.WithLimits("name other", "other", {})->OnEnd(absl::OkStatus(), 1);
  EXPECT_EQ(ByName(&callers).at("'other'").tokens, 1);
}

}  // namespace
}  // namespace sru::server::callers
