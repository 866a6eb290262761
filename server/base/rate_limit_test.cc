#include "server/base/rate_limit.h"

#include <string>

#include "absl/strings/string_view.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

TEST(RateLimitTest, LetsSoManyPassPerSecondAndCountsTheRest) {
  RateLimit limit(2);
  const absl::Time start = absl::FromUnixSeconds(1000);
  int64_t refused = -1;
  EXPECT_TRUE(limit.Take(start, &refused));
  EXPECT_EQ(refused, 0);
  EXPECT_TRUE(limit.Take(start, &refused));
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(limit.Take(start + absl::Milliseconds(999), &refused));
  EXPECT_TRUE(limit.Take(start + absl::Seconds(1), &refused));
  EXPECT_EQ(refused, 5);
  EXPECT_TRUE(limit.Take(start + absl::Seconds(1), &refused));
  EXPECT_EQ(refused, 0);
  EXPECT_FALSE(limit.Take(start + absl::Seconds(1), &refused));
  EXPECT_EQ(limit.total_refused(), 6);
}

TEST(RateLimitTest, PerAnotherTime) {
  RateLimit limit(1, absl::Seconds(10));
  const absl::Time start = absl::FromUnixSeconds(1000);
  int64_t refused = -1;
  EXPECT_TRUE(limit.Take(start, &refused));
  EXPECT_FALSE(limit.Take(start + absl::Seconds(1), &refused));
  EXPECT_FALSE(limit.Take(start + absl::Milliseconds(9999), &refused));
  EXPECT_TRUE(limit.Take(start + absl::Seconds(10), &refused));
  EXPECT_EQ(refused, 2);
}

TEST(RateLimitTest, ZeroIsNoLimit) {
  RateLimit limit(0);
  int64_t refused = 0;
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(limit.Take(absl::UnixEpoch(), &refused));
  EXPECT_EQ(limit.total_refused(), 0);
}

TEST(RateLimitTest, OneCallerHasHalf) {
  RateLimit limit(5);
  const absl::Time start = absl::FromUnixSeconds(1000);
  int64_t refused = 0;
  std::string b = "b";
  while (RateLimit::CountAsOne("a", b)) b += "b";
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(limit.Take(start, "a", &refused), i < 3) << i;
  EXPECT_TRUE(limit.Take(start, b, &refused));
  EXPECT_EQ(refused, 997);
  EXPECT_TRUE(limit.Take(start, &refused));
  EXPECT_FALSE(limit.Take(start, b, &refused));
  EXPECT_TRUE(limit.Take(start + absl::Seconds(1), "a", &refused));
}

}  // namespace
}  // namespace sru::server
