#include "bench/shape_list.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::bench {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ShapeListTest, Numbers) {
  EXPECT_THAT(ParseNumbers("batch", "1", 1, 8).value(), ElementsAre(1));
  EXPECT_THAT(ParseNumbers("batch", "8,1,3", 1, 8).value(), ElementsAre(8, 1, 3));
}

TEST(ShapeListTest, ErrorsNameTheFlagAndTheText) {
  for (const char* text : {"", "0", "9", "1,", ",1", "1;2", "x", "1,9", "1.5", "99999999999"}) {
    const absl::Status status = ParseNumbers("batch", text, 1, 8).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("--batch"), HasSubstr("1 to 8")));
  }
}

TEST(ShapeListTest, DataTypes) {
  EXPECT_EQ(ParseDataType("float32").value(), kernels::DataType::kFloat32);
  EXPECT_EQ(ParseDataType("bfloat16").value(), kernels::DataType::kBFloat16);
  EXPECT_THAT(std::string(ParseDataType("half").status().message()),
              AllOf(HasSubstr("--dtype"), HasSubstr("'half'")));
}

}  // namespace
}  // namespace sru::bench
