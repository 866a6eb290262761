#include "models/state_keys.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(StateKeysTest, ReadsAKeyALine) {
  const std::string a(32, 'a');
  const std::string b(44, '=');
  const auto keys = StateKeys::Parse("# new\n\n " + a + " # of May\r\n" + b, "F");
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*keys, ElementsAre(a, b));
}

TEST(StateKeysTest, RefusesWhatIsNoKeyWithoutRepeatingIt) {
  const std::string key(32, 'k');
  std::string many;
  for (int i = 0; i < 9; ++i) many += key + "\n";
  for (const std::string& text :
       {std::string(), std::string("# only this\n"), key + "\n" + std::string(31, 'k'), key + " k",
        std::string(32, '\x01'), many}) {
    const auto keys = StateKeys::Parse(text, "F");
    EXPECT_EQ(keys.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(keys.status().message()),
                AllOf(HasSubstr("F: "), HasSubstr("expected"), Not(HasSubstr("kkk"))));
  }
}

}  // namespace
}  // namespace sru::models
