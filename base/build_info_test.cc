#include "base/build_info.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru {
namespace {

TEST(BuildInfoTest, AProgramKnowsItsBuildId) {
  EXPECT_THAT(BuildId(), ::testing::MatchesRegex("[0-9a-f]{40}"));
}

TEST(BuildInfoTest, TheCommitIsUnknownUntilItIsSaid) {
  EXPECT_EQ(BuildText("x"), std::string("x ") + BuildVersion() + " (commit unknown)");
  SetBuildCommit("f3b37f5e-dirty");
  EXPECT_EQ(BuildText("x"), std::string("x ") + BuildVersion() + " (commit f3b37f5e-dirty)");
  SetBuildCommit("unknown");
}

}  // namespace
}  // namespace sru
