#include "server/batching/queue/speed_model.h"

#include "gtest/gtest.h"

namespace sru::server::batching {
namespace {

TEST(SpeedModelTest, TellsTheFixedPartFromTheTokens) {
  SpeedModel speed;
  EXPECT_FALSE(speed.known());
  for (int i = 0; i < 40; ++i) {
    const int tokens = 1 + (i * 37) % 400;
    speed.AddBatch(tokens, i % 7 == 0 ? 1.0 : 100e-6 + 2e-6 * tokens);  // one in seven is slow
  }
  EXPECT_TRUE(speed.known());
  EXPECT_NEAR(speed.Seconds(1000, 1), 100e-6 + 2000e-6, 20e-6);
  EXPECT_NEAR(speed.Seconds(1000, 5), 500e-6 + 2000e-6, 60e-6);
}

TEST(SpeedModelTest, IsProportionalWhileTheSizesAreAlike) {
  SpeedModel speed;
  for (int i = 0; i < 10; ++i) speed.AddBatch(10 + i % 2, 1e-3);
  EXPECT_NEAR(speed.Seconds(100, 1), 10e-3, 1e-3);
}

// As where the event loops interrupt workers: small batches then take as long as large ones.
TEST(SpeedModelTest, InterruptionsAreNotTakenForAFixedPart) {
  SpeedModel speed;
  for (int i = 0; i < 40; ++i) {
    const int tokens = i % 8 == 0 ? 6 : 400;
    const double interrupted = i % 2 == 0 ? 1e-3 : 0;
    speed.AddBatch(tokens, 1e-6 * tokens + interrupted, /*waited=*/0, interrupted);
  }
  EXPECT_NEAR(speed.FixedTokens(), 0, 1);
  EXPECT_EQ(speed.TokensWithin(500e-6), 500);
  for (int i = 0; i < 40; ++i) speed.AddBatch(400, 800e-6, /*waited=*/0, /*interrupted=*/400e-6);
  EXPECT_EQ(speed.TokensWithin(500e-6), 500);
  EXPECT_NEAR(speed.Seconds(400, 1), 800e-6, 1e-9);
}

TEST(SpeedModelTest, NeverNegative) {
  SpeedModel speed;
  for (int tokens = 1; tokens < 60; ++tokens) speed.AddBatch(tokens, 1.0 / tokens);
  EXPECT_GE(speed.Seconds(1000, 1), speed.Seconds(1, 1));
  EXPECT_GT(speed.Seconds(1, 1), 0);
}

TEST(SpeedModelTest, TheMarginFollowsOutcomesWithinBounds) {
  SpeedModel speed;
  EXPECT_NEAR(speed.margin(), 1.25 * 1.1, 1e-9);
  speed.AddOutcome(1, 1000);  // an outlier
  EXPECT_NEAR(speed.margin(), 1.375 * 1.1, 1e-9);
  for (int i = 0; i < 30; ++i) speed.AddOutcome(1, i % 2 == 0 ? 1.5 : 2);
  EXPECT_GT(speed.margin(), 1.9 * 1.1);
  EXPECT_LE(speed.margin(), 2 * 1.1);
  for (int i = 0; i < 200; ++i) speed.AddOutcome(1, 1000);
  EXPECT_NEAR(speed.margin(), 8 * 1.1, 1e-9);
  for (int i = 0; i < 2000; ++i) speed.AddOutcome(1, 0.5);
  EXPECT_NEAR(speed.margin(), 1 * 1.1, 1e-9);
}

}  // namespace
}  // namespace sru::server::batching
