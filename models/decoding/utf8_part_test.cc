#include "models/decoding/utf8_part.h"

#include <string>

#include "base/utf8.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

// As a decoder that replaces would give the whole text.
std::string ReplacedParts(std::string_view text) {
  std::string replaced;
  while (!text.empty()) {
    const Utf8Part part = FirstUtf8Part(text);
    if (part.bytes == 0 || part.bytes > text.size()) return "no part";
    replaced +=
        part.kind == Utf8Part::kCharacter ? text.substr(0, part.bytes) : kReplacementCharacter;
    text.remove_prefix(part.bytes);
  }
  return replaced;
}

// Tables 3-8 to 3-11 of the Unicode standard 15.0 ("U+FFFD substitution of maximal subparts").
TEST(Utf8PartTest, ReplacesAsTheStandardDoes) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(ReplacedParts("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplacedParts("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"),
            r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(ReplacedParts("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"),
            r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(ReplacedParts("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
}

TEST(Utf8PartTest, AgreesWithTheCheckOnEveryCharacterOfUpToThreeBytes) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      for (const int c : {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF}) {
        const std::string text = {static_cast<char>(a), static_cast<char>(b), static_cast<char>(c)};
        const Utf8Part part = FirstUtf8Part(text);
        const bool valid = FindInvalidUtf8(text) >= part.bytes;
        ASSERT_EQ(part.kind == Utf8Part::kCharacter,
                  valid && FindInvalidUtf8(text.substr(0, part.bytes)) == part.bytes)
            << a << " " << b << " " << c;
        ASSERT_EQ(FindInvalidUtf8(ReplacedParts(text)), ReplacedParts(text).size());
      }
    }
  }
}

TEST(Utf8PartTest, WaitsOnlyForWhatMayBecomeACharacter) {
  const auto kind = [](std::string_view text) { return FirstUtf8Part(text).kind; };
  EXPECT_EQ(kind("\xC3"), Utf8Part::kIncomplete);
  EXPECT_EQ(kind("\xE2\x82"), Utf8Part::kIncomplete);
  EXPECT_EQ(kind("\xF0\x9F\x98"), Utf8Part::kIncomplete);
  EXPECT_EQ(kind("\xF0\x9F\x98\x80"), Utf8Part::kCharacter);
  EXPECT_EQ(kind("\xF4\x8F\xBF\xBF"), Utf8Part::kCharacter);
  // Nothing that follows makes one of these: an overlong form, a surrogate, above U+10FFFF, no
  // lead.
  for (const char* const broken :
       {"\xC1", "\xE0\x9F", "\xED\xA0", "\xF0\x8F", "\xF4\x90", "\xF5", "\x80"}) {
    EXPECT_EQ(kind(broken), Utf8Part::kBroken) << broken;
    EXPECT_EQ(FirstUtf8Part(broken).bytes, 1u);
  }
}

}  // namespace
}  // namespace sru::models
