#include "models/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace sru::models {
namespace {

TEST(Utf8Test, FindsTheFirstInvalidByte) {
  const struct {
    std::string text;
    size_t offset;
  } kCases[] = {
      {"", 0},
      {"plain", 5},
      {"caf\u00e9 \u20ac \U0001f600 and more", 23},
      {"\xff", 0},
      {"ab\x80", 2},
      {"12345678\xc3", 8},             // cut within a character
      {"\xe2\x82", 0},                 //
      {"\xf0\x9f\x98", 0},             //
      {"\xc0\xaf", 0},                 // overlong
      {"\xe0\x80\xaf", 0},             //
      {"\xf0\x80\x80\xaf", 0},         //
      {"x\xed\xa0\x80", 1},            // a surrogate
      {"x\xf4\x90\x80\x80", 1},        // above U+10FFFF
      {"\xf8\x88\x80\x80\x80", 0},     // five bytes
      {"\xf4\x8f\xbf\xbf", 4},         // U+10FFFF
      {"\xef\xbf\xbf", 3},             // U+FFFF
      {std::string("a\0b", 3), 3},     // NUL is a character
      {"\u00e9\u00e9\xc3(\u00e9", 4},  // a lead byte with no continuation
  };
  for (const auto& c : kCases) EXPECT_EQ(FindInvalidUtf8(c.text), c.offset) << c.text;
}

TEST(Utf8Test, EveryOffsetOfABadByteIsFound) {
  for (size_t size = 1; size < 40; ++size) {
    for (size_t bad = 0; bad < size; ++bad) {
      std::string text(size, 'x');
      text[bad] = '\x80';
      EXPECT_EQ(FindInvalidUtf8(text), bad);
    }
  }
}

TEST(Utf8Test, LowerCaseIsTheSimpleMapping) {
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
