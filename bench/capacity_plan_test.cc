#include "bench/capacity_plan.h"

#include "bench/capacity_calibrate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::bench {
namespace {

using ::testing::SizeIs;

MachineSpeed Speed() {
  MachineSpeed speed;
  speed.cores = 2;
  speed.batch = {20, 1, 2, 0};
  speed.call = {10, 5, 20, 1};
  speed.client = {0, 3, 6, 0};
  return speed;
}

PlanOptions Options(double rate, double p99_us) {
  PlanOptions options;
  options.mix.lengths = {5, 10, 20};
  options.rate = rate;
  options.p99_us = p99_us;
  options.instances = {2};
  options.max_batch_tokens = {4096};
  options.max_queue_delay_us = {0};
  options.calls = 4000;
  return options;
}

TEST(PlanTest, KeepsTheObjectiveWithServersToSpare) {
  const auto plan = MakePlan(Speed(), Options(200000, 2000));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->possible);
  const PlanChoice& best = plan->choices[plan->best];
  EXPECT_GT(best.saturation, 20000);
  EXPECT_LT(best.rate, best.saturation);
  ASSERT_THAT(plan->rows, SizeIs(3));
  EXPECT_EQ(plan->rows[0].servers, plan->servers);
  EXPECT_EQ(plan->rows[1].servers, plan->servers - 1);
  for (int i : {0, 1}) {
    EXPECT_LE(plan->rows[i].result.latency.Percentile(99), 2'000'000);
    EXPECT_EQ(plan->rows[i].result.refused, 0);
  }
  // As many as the rate needs, not more.
  EXPECT_GE(plan->servers - 1, 200000 / best.saturation);
  EXPECT_LE(plan->servers - 1, 200000 / best.rate + 2);
}

// As long as refusing is cheap by what a call costs: what cannot even be refused in time waits to be read.
TEST(PlanTest, TooMuchIsRefusedNotKeptWaiting) {
  MachineSpeed speed = Speed();
  speed.batch = {20, 5, 20, 0};
  const auto plan = MakePlan(speed, Options(100000, 5000));
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->possible);
  const ServerRunResult& flood = plan->rows.back().result;
  EXPECT_GT(flood.refused, flood.calls / 4);
  // The queue at the rate of the flood, then the call's own batch, which shares its core with refusals.
  const double wait_s = static_cast<double>(plan->max_queue_tokens) /
                        Options(1, 1).mix.mean_tokens() / flood.throughput();
  const double batch_s = speed.batch.Us(plan->max_queue_tokens, 256, 20) * 1e-6;
  EXPECT_LT(flood.latency.Percentile(99), (wait_s + 1.5 * batch_s + 0.005) * 1e9);
}

TEST(PlanTest, AShorterTimeNeedsMoreServers) {
  const auto relaxed = MakePlan(Speed(), Options(200000, 20000));
  const auto strict = MakePlan(Speed(), Options(200000, 300));
  ASSERT_TRUE(relaxed.ok() && strict.ok());
  ASSERT_TRUE(strict->possible);
  EXPECT_GT(strict->servers, relaxed->servers);
}

TEST(PlanTest, SaysWhatCannotBeHad) {
  const auto plan = MakePlan(Speed(), Options(1000, 10));
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_FALSE(plan->possible);
  EXPECT_GT(plan->lightest.latency.Percentile(99), 10'000);
}

TEST(PlanTest, KeepsDefaultsThatAreAboutAsGood) {
  PlanOptions options = Options(10000, 20000);
  options.max_batch_tokens = {1024, 4096, 8192};
  const auto plan = MakePlan(Speed(), options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->choices[plan->best].max_batch_tokens, 4096);
  EXPECT_FALSE(MakePlan(Speed(), Options(0, 100)).ok());
}

// Costs that made a measurement are found from it again.
TEST(CalibrateTest, FindsTheCostsOfASimulatedMachine) {
  MachineSpeed truth = Speed();
  truth.call = {25, 6, 18, 1.5, 9};
  truth.client = {0, 4, 7, 0};
  CallMix mix;
  mix.lengths = {5, 10, 20};
  std::vector<LoopMeasurement> loops;
  for (const auto& [in_flight, sequences] :
       {std::make_pair(1, 1), {64, 1}, {16, 32}, {kCrowdCalls, 1}}) {
    LoopMeasurement loop;
    loop.in_flight = in_flight;
    loop.sequences = sequences;
    const auto measured = SimulateLoop(truth, mix, loop);
    ASSERT_TRUE(measured.ok()) << measured.status();
    loops.push_back(*measured);
  }
  MachineSpeed found = Speed();
  ASSERT_TRUE(FitCallCosts(loops, mix, &found).ok());
  EXPECT_NEAR(found.call.wake_us, 25, 1);
  EXPECT_NEAR(found.call.turn_us, 6, 0.5);
  EXPECT_NEAR(found.call.call_us, 18, 1);
  EXPECT_NEAR(found.call.sequence_us, 1.5, 0.2);
  EXPECT_NEAR(found.call.crowd_us, 9, 0.5);
  EXPECT_NEAR(found.client.turn_us, 4, 0.5);
  EXPECT_NEAR(found.client.call_us, 7, 1);
}

}  // namespace
}  // namespace sru::bench
