#include "base/utf8.h"

#include <string>

#include "base/valid_utf8.h"
#include "gtest/gtest.h"

namespace sru {
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
  // The vectors of simdjson's check are shorter than 70 bytes.
  const std::string padding(70, 'x');
  for (const auto& c : kCases) {
    EXPECT_EQ(FindInvalidUtf8(c.text), c.offset) << c.text;
    const bool is_valid = c.offset == c.text.size();
    EXPECT_EQ(IsValidUtf8(c.text), is_valid) << c.text;
    EXPECT_EQ(IsValidUtf8(padding + c.text), is_valid) << c.text;
    EXPECT_EQ(IsValidUtf8(c.text + padding), is_valid) << c.text;
  }
}

TEST(Utf8Test, EveryOffsetOfABadByteIsFound) {
  for (size_t size = 1; size < 40; ++size) {
    for (size_t bad = 0; bad < size; ++bad) {
      std::string text(size, 'x');
      text[bad] = '\x80';
      EXPECT_EQ(FindInvalidUtf8(text), bad);
      EXPECT_FALSE(IsValidUtf8(text));
    }
  }
}

TEST(Utf8Test, CutsAndCountsCharacters) {
  const std::string text = "a\u00e9\U0001f600z";  // 1, 2, 4 and 1 bytes
  EXPECT_EQ(CountUtf8(text), 4);
  const size_t kept[] = {0, 1, 1, 3, 3, 3, 3, 7, 8, 8};
  for (size_t most = 0; most < 10; ++most) EXPECT_EQ(CutUtf8(text, most).size(), kept[most]);
}

}  // namespace
}  // namespace sru
