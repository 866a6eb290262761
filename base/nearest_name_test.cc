#include "base/nearest_name.h"

#include <vector>

#include "gtest/gtest.h"

namespace sru {
namespace {

TEST(NearestNameTest, TakesTheFewestChanges) {
  const std::vector<absl::string_view> names = {"listen", "max_batch_tokens", "lister"};
  EXPECT_EQ(NearestName("kitten", {"sitting"}, 3), "sitting");
  EXPECT_EQ(NearestName("kitten", {"sitting"}, 2), "");
  EXPECT_EQ(NearestName("lisetn", names, 2), "listen");
  EXPECT_EQ(NearestName("max_batch_token", names, 1), "max_batch_tokens");
  EXPECT_EQ(NearestName("liste", names, 1), "listen");  // the first of two that are as near
  EXPECT_EQ(NearestName("listen", names, 0), "listen");
  EXPECT_EQ(NearestName("", names, 5), "");
  EXPECT_EQ(NearestName("x", {}, 5), "");
}

}  // namespace
}  // namespace sru
