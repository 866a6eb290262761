// The names of pooling, activation and data type: each value has one, and nothing else is one.
#include "kernels/enum_names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/data_type.h"
#include "kernels/stack_spec.h"

namespace sru::kernels {
namespace {

template <auto kName>
void ExpectNamesAndValuesAgree() {
  std::set<std::string> names;
  for (const auto value : AllNamed<kName>()) {
    const std::string name = kName(value);
    EXPECT_TRUE(names.insert(name).second) << name << " is the name of two values";
    auto parsed = static_cast<NamedEnum<kName>>(-1);
    ASSERT_TRUE(ParseNamed<kName>(name, &parsed)) << name;
    EXPECT_EQ(parsed, value) << name;
  }
  const auto past_the_last = static_cast<NamedEnum<kName>>(names.size());
  EXPECT_FALSE(IsNamed<kName>(past_the_last));
  for (const char* unknown : {"", " ", "nothing of the kind"}) {
    auto parsed = past_the_last;
    EXPECT_FALSE(ParseNamed<kName>(unknown, &parsed)) << unknown;
    EXPECT_EQ(parsed, past_the_last) << "a name that is unknown left a value";
  }
}

TEST(EnumNamesTest, NamesAndValuesAgree) {
  ExpectNamesAndValuesAgree<PoolingName>();
  ExpectNamesAndValuesAgree<ActivationName>();
  ExpectNamesAndValuesAgree<DataTypeName>();
}

enum class Fruit { kApple, kPear, kFig };
constexpr const char* FruitName(Fruit fruit) {
  switch (fruit) {
    case Fruit::kApple:
      return "apple";
    case Fruit::kPear:
      return "pear";
    case Fruit::kFig:
      return "fig";
  }
  return "";
}

TEST(EnumNamesTest, ListsNamesForAMessage) {
  EXPECT_EQ(AllNamed<FruitName>().size(), 3u);
  EXPECT_EQ(ListNames<FruitName>(), "apple, pear or fig");
  EXPECT_EQ(ListNames<FruitName>(1), "pear or fig");
  EXPECT_EQ(ListNames<FruitName>(2), "fig");
  EXPECT_EQ(ListNames<FruitName>(1, "\""), "\"pear\" or \"fig\"");
}

TEST(DataTypeTest, KnowsTheBytesOfEachType) {
  EXPECT_EQ(ValueBytes(DataType::kFloat32), 4u);
  EXPECT_EQ(ValueBytes(DataType::kBFloat16), 2u);
  EXPECT_EQ(ValueBytes(DataType::kInt8), 1u);
  EXPECT_EQ(RowOf(DataType::kInt8).bytes.embedding, 2u);
  EXPECT_EQ(RowOf(DataType::kInt8).bytes.activation, 4u);
  for (const DataType dtype : kAllDataTypes) {
    EXPECT_GT(ValueBytes(dtype), 0u);
    EXPECT_GT(RowOf(dtype).bytes.activation, 0u);
  }
}

}  // namespace
}  // namespace sru::kernels
