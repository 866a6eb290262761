#include "server/batching/core_pool.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace sru::server::batching
