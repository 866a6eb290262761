#include "server/telemetry/request_id.h"

#include "gtest/gtest.h"

namespace sru::server::telemetry {
namespace {

TEST(RequestIdTest, VisibleAsciiOfBoundedLengthIsValid) {
  EXPECT_TRUE(IsValidRequestId("a"));
  EXPECT_TRUE(IsValidRequestId("0f8fad5b-d9cb-469f-a165-70867728950e"));
  EXPECT_TRUE(IsValidRequestId("!~"));
  EXPECT_TRUE(IsValidRequestId(std::string(128, 'x')));
}

TEST(RequestIdTest, AnythingElseIsNot) {
  for (const std::string& id : {std::string(), std::string("a b"), std::string("a\nb"),
                                std::string("a\tb"), std::string("\x7f"), std::string("\xc3\xa9"),
                                std::string(1, '\0'), std::string(129, 'x')}) {
    EXPECT_FALSE(IsValidRequestId(id)) << id;
  }
}

TEST(RequestIdTest, NewIdsAreValidAndDiffer) {
  const std::string first = MakeRequestId();
  const std::string second = MakeRequestId();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_TRUE(IsValidRequestId(first));
  EXPECT_NE(first, second);
}

}  // namespace
}  // namespace sru::server::telemetry
