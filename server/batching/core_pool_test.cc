#include "server/batching/core_pool.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(CorePoolTest, GivesTheCoreWithTheFewestWorkers) {
  CorePool pool({2, 5, 7});
  std::vector<int> given;
  for (int i = 0; i < 7; ++i) given.push_back(pool.Acquire());
  EXPECT_THAT(given, ElementsAre(2, 5, 7, 2, 5, 7, 2));
  pool.Release(7);
  pool.Release(7);
  EXPECT_EQ(pool.Acquire(), 7);
  EXPECT_EQ(pool.Acquire(), 7);
  EXPECT_EQ(pool.Acquire(), 5);
}

TEST(CorePoolTest, AnEmptyPoolGivesNone) {
  CorePool pool({});
  EXPECT_EQ(pool.Acquire(), -1);
  pool.Release(-1);
  EXPECT_EQ(pool.Acquire(), -1);
}

TEST(CorePoolTest, PinsTheCallingThreadOnly) {
  const std::vector<int> allowed = AllowedCores();
  ASSERT_THAT(allowed, Not(IsEmpty()));
  for (int core : {allowed.front(), allowed.back()}) {
    std::thread([core] {
      const absl::Status status = PinThisThread(core);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_THAT(AllowedCores(), ElementsAre(core));
    }).join();
  }
  EXPECT_EQ(AllowedCores(), allowed);
}

TEST(CorePoolTest, ACoreThatIsNotThereIsAnError) {
  std::thread([] {
    const std::vector<int> allowed = AllowedCores();
    EXPECT_EQ(PinThisThread(-1).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(PinThisThread(1 << 16).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(PinThisThread((1 << 16) - 1).ok());
    EXPECT_EQ(AllowedCores(), allowed);
  }).join();
}

}  // namespace
}  // namespace sru::server
