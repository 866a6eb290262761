#include "bench/capacity_fleet.h"

#include <chrono>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sru::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

// Two cores that need 100 us for a call: 20,000 calls/s a server.
MachineSpeed Speed() {
  MachineSpeed speed;
  speed.cores = 2;
  speed.batch.fixed_us = 20;
  speed.batch.sequence_us = 30;
  speed.call.call_us = 50;
  return speed;
}

FleetOptions Options(int servers, double rate) {
  FleetOptions options;
  options.servers = servers;
  options.rate = rate;
  options.clients = 20;
  options.duration_s = 10;
  options.warmup_s = 1;
  options.windows = 10;
  options.mix.lengths = {10};
  options.mix.deadline_ns = 2'000'000'000;
  return options;
}

TEST(FleetTest, ServersShareTheCallsEvenly) {
  const auto result = RunFleet(Speed(), Options(4, 20000));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(static_cast<double>(result->calls), 200000, 2000);
  ASSERT_THAT(result->windows, SizeIs(10));
  ASSERT_THAT(result->phases, SizeIs(1));
  const FleetCounts& all = result->phases[0];
  EXPECT_EQ(all.ok, all.calls);
  EXPECT_EQ(all.servers, 4);
  EXPECT_NEAR(all.busy, 0.25, 0.03);
  EXPECT_LT(all.latency.Percentile(99), 2'000'000);
}

// The calls in flight on it are tried again after 0.08 to 0.12 s, and none fails.
TEST(FleetTest, ALostServerCostsARetry) {
  FleetOptions options = Options(4, 40000);
  options.events = *ParseFleetEvents("lose@5s");
  const auto result = RunFleet(Speed(), options);
  ASSERT_TRUE(result.ok()) << result.status();
  const FleetCounts& before = result->phases[0];
  const FleetCounts& after = result->phases[1];
  EXPECT_EQ(after.name, "one lost");
  EXPECT_EQ(before.servers, 4);
  EXPECT_EQ(after.servers, 3);
  EXPECT_EQ(before.ok, before.calls);  // those that met the loss came in the end
  EXPECT_EQ(after.ok, after.calls);
  EXPECT_GE(before.retried, 1);
  EXPECT_LE(before.retried, 100);
  EXPECT_GT(before.latency.max(), 80'000'000);
  EXPECT_LT(before.latency.max(), 130'000'000);
  EXPECT_GT(after.busy, 1.2 * before.busy);
}

TEST(FleetTest, WithoutRetriesExactlyThoseInFlightAreLost) {
  FleetOptions options = Options(4, 40000);
  options.events = *ParseFleetEvents("lose@5s");
  const auto with = RunFleet(Speed(), options);
  options.retry.max_attempts = 1;
  const auto without = RunFleet(Speed(), options);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_GE(without->phases[0].lost, 1);
  EXPECT_EQ(without->phases[0].lost, with->phases[0].retried);
}

TEST(FleetTest, ADrainedServerCostsNothing) {
  FleetOptions options = Options(4, 40000);
  options.events = *ParseFleetEvents("drain@3s");
  options.drain_delay_s = 1;
  auto result = RunFleet(Speed(), options);
  ASSERT_TRUE(result.ok()) << result.status();
  for (const FleetCounts& phase : result->phases) {
    EXPECT_EQ(phase.ok, phase.calls);
    EXPECT_EQ(phase.retried, 0);
  }
  EXPECT_EQ(result->phases[1].servers, 3);

  // Without the delay those that are on their way are refused, and tried again.
  options.drain_delay_s = 0;
  options.network_s = 0.001;
  result = RunFleet(Speed(), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->phases[0].ok, result->phases[0].calls);
  EXPECT_EQ(result->phases[1].ok, result->phases[1].calls);
  EXPECT_GE(result->phases[0].retried + result->phases[1].retried, 1);
}

TEST(FleetTest, NoServerIsLeft) {
  FleetOptions options = Options(1, 1000);
  options.duration_s = 4;
  options.events = *ParseFleetEvents("lose@2s");
  const auto result = RunFleet(Speed(), options);
  ASSERT_TRUE(result.ok()) << result.status();
  const FleetCounts& after = result->phases[1];
  EXPECT_EQ(after.ok, 0);
  EXPECT_EQ(after.lost + after.late, after.calls);
  EXPECT_EQ(after.servers, 0);
}

TEST(FleetTest, TheQueueBringsServersAndQuietTakesThemAway) {
  FleetOptions options = Options(2, 2000);
  MachineSpeed speed = Speed();
  speed.batch.sequence_us = 930;  // 2,000 calls/s a server
  options.autoscaler.emplace();
  options.autoscaler->queue_tokens = 200;
  options.startup_s = 20;
  options.duration_s = 900;
  options.events = *ParseFleetEvents("rate=6000@60s,rate=500@300s");
  const auto result = RunFleet(speed, options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->phases[0].servers, 2);
  EXPECT_GT(result->phases[1].servers, 3);
  EXPECT_LE(result->phases[1].servers, 10);
  EXPECT_GT(result->phases[1].refused, 0);  // until they serve
  EXPECT_LT(result->phases[2].servers, result->phases[1].servers);
  // A server that goes costs no call.
  EXPECT_EQ(result->windows.back().ok, result->windows.back().calls);
  EXPECT_EQ(result->phases[2].lost, 0);
}

TEST(FleetTest, ASampleStandsForTheWhole) {
  FleetOptions options = Options(20, 300000);
  options.clients = 200;
  options.duration_s = 2;
  const auto whole = RunFleet(Speed(), options);
  options.sample = 5;
  const auto part = RunFleet(Speed(), options);
  ASSERT_TRUE(whole.ok() && part.ok());
  EXPECT_NEAR(static_cast<double>(part->calls) * 5 / whole->calls, 1, 0.02);
  EXPECT_EQ(part->phases[0].servers, 20);
  EXPECT_NEAR(part->phases[0].latency.mean() / whole->phases[0].latency.mean(), 1, 0.1);
}

TEST(FleetTest, TheSameSeedGivesTheSameFleet) {
  FleetOptions options = Options(3, 20000);
  options.events = *ParseFleetEvents("lose@2s,drain@4s,rate=5000@6s");
  const auto text = [&] {
    const auto result = RunFleet(Speed(), options);
    std::string all;
    for (const FleetCounts& phase : result->phases) {
      absl::StrAppend(&all, phase.name, " ", phase.calls, " ", phase.retried, " ",
                      phase.latency.mean(), "\n");
    }
    return all;
  };
  const std::string first = text();
  EXPECT_EQ(text(), first);
  options.seed = 2;
  EXPECT_NE(text(), first);
}

// Loose, for machines that are busy and for sanitizers: 10^6 calls/s take a few seconds a second.
TEST(FleetTest, AMillionCallsPerSecond) {
  FleetOptions options = Options(80, 1e6);
  options.duration_s = 0.5;
  options.warmup_s = 0.1;
  options.clients = 500;
  const auto start = std::chrono::steady_clock::now();
  const auto result = RunFleet(Speed(), options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_NEAR(static_cast<double>(result->calls), 500000, 5000);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(FleetTest, WrongEventsAreNamed) {
  for (const char* text : {"lose", "lose@x", "rate@5s", "rate=x@5s", "stop@1s", "lose@-1s",
                           "lose@5s,drain@2s", "rate=-1@1s"}) {
    EXPECT_THAT(ParseFleetEvents(text).status().message(), HasSubstr("--events")) << text;
  }
  FleetOptions options = Options(2, 100);
  options.events = *ParseFleetEvents("lose@10s");
  EXPECT_THAT(RunFleet(Speed(), options).status().message(), HasSubstr("--events"));
}

// The rule is that of the file which clients are given.
TEST(RetryRuleTest, IsThatOfTheServiceConfig) {
  std::ifstream in("client/service_config.json");
  const auto config = nlohmann::json::parse(in);
  const auto& policy = config["methodConfig"][0]["retryPolicy"];
  const RetryOptions options;
  EXPECT_EQ(policy["maxAttempts"], options.max_attempts);
  EXPECT_EQ(policy["initialBackoff"], absl::StrCat(options.initial_backoff_s, "s"));
  EXPECT_EQ(policy["maxBackoff"], absl::StrCat(options.max_backoff_s, "s"));
  EXPECT_EQ(policy["backoffMultiplier"], options.backoff_multiplier);
  EXPECT_EQ(config["retryThrottling"]["maxTokens"], options.throttle_tokens);
  EXPECT_EQ(config["retryThrottling"]["tokenRatio"], options.throttle_ratio);
}

TEST(RetryRuleTest, WaitsLongerAndGivesUp) {
  std::mt19937_64 random(1);
  RetryRule rule((RetryOptions()));
  for (const auto& [attempt, seconds] : {std::make_pair(1, 0.1), {2, 0.2}, {3, 0.4}}) {
    const auto wait = rule.Failed(attempt, random);
    ASSERT_TRUE(wait.has_value());
    EXPECT_GE(*wait, seconds * 0.8e9);
    EXPECT_LE(*wait, seconds * 1.2e9);
  }
  EXPECT_FALSE(rule.Failed(4, random).has_value());

  RetryRule throttled((RetryOptions()));
  int retries = 0;
  while (throttled.Failed(1, random).has_value()) ++retries;
  EXPECT_EQ(retries, 499);
  for (int i = 0; i < 10; ++i) throttled.Succeeded();
  EXPECT_TRUE(throttled.Failed(1, random).has_value());
}

}  // namespace
}  // namespace sru::bench
