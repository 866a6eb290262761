#include <string>

#include "gtest/gtest.h"
#include "models/text/code_point.h"

namespace sru::models {
namespace {

TEST(LowerCaseTest, IsTheSimpleMapping) {
  const struct {
    std::string text;
    std::string lower;
  } kCases[] = {
      {"", ""},
      {"AZaz09[@`{", "azaz09[@`{"},
      {"\u00c9T\u00c9", "\u00e9t\u00e9"},            // Latin
      {"\u0416\u0423\u041a", "\u0436\u0443\u043a"},  // Cyrillic
      {"\u1e9e", "\u00df"},                          // capital sharp s: three bytes become two
      {"\u023a", "\u2c65"},                          // two bytes become three
      {"\u0130", "i"},                               // Python: i and a combining dot
      {"\u039f\u03a3", "\u03bf\u03c3"},              // Python: a final sigma
      {"\u4e2d\U0001f600", "\u4e2d\U0001f600"},
      {"\U00010400", "\U00010428"},  // Deseret, four bytes
  };
  for (const auto& c : kCases) {
    std::string lower = "+";
    AppendLowerCase(c.text, &lower);
    EXPECT_EQ(lower, "+" + c.lower);
  }
}

}  // namespace
}  // namespace sru::models
