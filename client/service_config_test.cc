#include "client/service_config.h"

#include "client/client.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace sru::client {
namespace {

using nlohmann::json;

TEST(ServiceConfigTest, TheFileRetriesAndBalances) {
  const json config = json::parse(ServiceConfigJson());
  const json& balancing = config["loadBalancingConfig"];
  EXPECT_EQ(balancing[0]["outlier_detection_experimental"]["childPolicy"][0], balancing[1]);
  EXPECT_TRUE(balancing[1].contains("round_robin"));
  EXPECT_EQ(config["healthCheckConfig"]["serviceName"], "");
  const json& policy = config["methodConfig"][0]["retryPolicy"];
  EXPECT_EQ(policy["retryableStatusCodes"], json({"UNAVAILABLE", "CANCELLED"}));
  EXPECT_EQ(config["methodConfig"][0]["name"][0]["service"], "sru.v1.InferenceService");
}

// The file is for other languages; this library must have the same defaults.
TEST(ServiceConfigTest, TheDefaultsAreThoseOfTheFile) {
  const ConnectOptions options;
  const json policy = json::parse(ServiceConfigJson())["methodConfig"][0]["retryPolicy"];
  EXPECT_EQ(policy["maxAttempts"], options.max_attempts);
  absl::Duration initial;
  absl::Duration most;
  ASSERT_TRUE(absl::ParseDuration(policy["initialBackoff"].get<std::string>(), &initial));
  ASSERT_TRUE(absl::ParseDuration(policy["maxBackoff"].get<std::string>(), &most));
  EXPECT_EQ(initial, options.initial_backoff);
  EXPECT_EQ(most, options.max_backoff);
}

TEST(ServiceConfigTest, TakesAnotherRetryPolicy) {
  const json config =
      json::parse(ServiceConfigJson(2, absl::Milliseconds(5), absl::Milliseconds(1500)));
  const json& policy = config["methodConfig"][0]["retryPolicy"];
  EXPECT_EQ(policy["maxAttempts"], 2);
  EXPECT_EQ(policy["initialBackoff"], "0.005000s");
  EXPECT_EQ(policy["maxBackoff"], "1.500000s");
  EXPECT_EQ(policy["backoffMultiplier"], 2);
}

TEST(ServiceConfigTest, OneAttemptIsNoRetryPolicyButTheSameBalancing) {
  const json config = json::parse(ServiceConfigJson(1, absl::Seconds(1), absl::Seconds(1)));
  EXPECT_FALSE(config["methodConfig"][0].contains("retryPolicy"));
  EXPECT_TRUE(config["loadBalancingConfig"][1].contains("round_robin"));
  EXPECT_TRUE(config.contains("healthCheckConfig"));
}

}  // namespace
}  // namespace sru::client
