#include "bench/capacity_autoscaler.h"

#include <fstream>
#include <sstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::bench {
namespace {

using ::testing::HasSubstr;

FleetMetrics Queue(int ready, double tokens_each, int starting = 0) {
  FleetMetrics metrics;
  metrics.ready = ready;
  metrics.starting = starting;
  metrics.queue_tokens = tokens_each * ready;
  return metrics;
}

TEST(AutoscalerTest, UpwardsAtOnceAtMostDoubledIn30Seconds) {
  Autoscaler scaler({});
  EXPECT_EQ(scaler.Decide(0, Queue(2, 4096)), 2);
  EXPECT_EQ(scaler.Decide(15, Queue(2, 4500)), 2);  // within a tenth
  EXPECT_EQ(scaler.Decide(30, Queue(2, 5000)), 3);
  // Those that start count as idle: what the ready ones ask for is not asked for again.
  EXPECT_EQ(scaler.Decide(45, Queue(2, 6000, 1)), 3);
  EXPECT_EQ(scaler.Decide(75, Queue(3, 60000)), 6);
  EXPECT_EQ(scaler.Decide(90, Queue(3, 60000, 3)), 6);  // doubled less than 30 s ago
  EXPECT_EQ(scaler.Decide(105, Queue(6, 60000)), 10);   // the most
}

TEST(AutoscalerTest, DownwardsByOneAMinuteAfterFiveQuietOnes) {
  Autoscaler scaler({});
  EXPECT_EQ(scaler.Decide(0, Queue(6, 4096)), 6);
  double now = 15;
  for (; now <= 300; now += 15) EXPECT_EQ(scaler.Decide(now, Queue(6, 0)), 6) << now;
  EXPECT_EQ(scaler.Decide(now, Queue(6, 0)), 5);  // the wish for 6 is more than 300 s old
  for (int i = 0; i < 3; ++i) EXPECT_EQ(scaler.Decide(now += 15, Queue(5, 0)), 5);
  EXPECT_EQ(scaler.Decide(now += 15, Queue(5, 0)), 4);
  for (int i = 0; i < 40; ++i) scaler.Decide(now += 15, Queue(2, 0));
  EXPECT_EQ(scaler.Decide(now += 15, Queue(2, 0)), 2);  // the fewest
}

TEST(AutoscalerTest, TheLargerWishCounts) {
  AutoscalerOptions options;
  options.busy = 0.75;
  Autoscaler scaler(options);
  FleetMetrics metrics = Queue(4, 0);
  metrics.busy = 4 * 0.95;
  EXPECT_EQ(scaler.Decide(0, metrics), 6);  // 4 * 0.95 / 0.75 = 5.07
}

// The defaults are those of deploy/.
TEST(AutoscalerTest, IsSetAsTheDeploymentIs) {
  std::ifstream in("deploy/kubernetes/base/horizontalpodautoscaler.yaml");
  std::stringstream text;
  text << in.rdbuf();
  const AutoscalerOptions defaults;
  const auto has = [&](const char* key, double value, const char* end = "\n") {
    std::ostringstream line;
    line << key << value << end;
    EXPECT_THAT(text.str(), HasSubstr(line.str()));
  };
  has("minReplicas: ", defaults.min_servers);
  has("maxReplicas: ", defaults.max_servers);
  has("averageValue: \"", defaults.queue_tokens, "\"");
  has("value: ", defaults.up_percent);
  has("periodSeconds: ", defaults.up_period_s);
  has("stabilizationWindowSeconds: ", defaults.down_window_s);
  has("value: ", defaults.down_servers);
  has("periodSeconds: ", defaults.down_period_s);
}

}  // namespace
}  // namespace sru::bench
