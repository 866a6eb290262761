#include "client/token_view.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Optional;

TEST(TokenViewTest, ColorsOnlyWhereTheyCanBeSeenAndAreWanted) {
  EXPECT_TRUE(WantsColor(true, nullptr, "xterm"));
  EXPECT_TRUE(WantsColor(true, "", "xterm"));
  EXPECT_FALSE(WantsColor(false, nullptr, "xterm"));
  EXPECT_FALSE(WantsColor(true, "1", "xterm"));
  EXPECT_FALSE(WantsColor(true, nullptr, "dumb"));
  EXPECT_FALSE(WantsColor(true, nullptr, nullptr));
}

TEST(TokenViewTest, CutsAsTheTokenizerDoes) {
  EXPECT_THAT(SplitTokens("a\xc3\xa9\n", "bytes", 4),
              Optional(ElementsAre("a", "\xc3", "\xa9", "\n")));
  EXPECT_THAT(SplitTokens("a\xc3\xa9\n", "characters", 3),
              Optional(ElementsAre("a", "\xc3\xa9", "\n")));
  EXPECT_THAT(SplitTokens(" two  words\n\n", "line_words", 4),
              Optional(ElementsAre("two", "words", "\n", "\n")));
  EXPECT_THAT(SplitTokens("two\twords\n", "whitespace", 2), Optional(ElementsAre("two", "words")));
  EXPECT_THAT(SplitTokens("Two words", "lowercase", 2), Optional(ElementsAre("Two", "words")));
  // Another number of tokens, or cuts that only the server knows.
  EXPECT_EQ(SplitTokens("two words", "whitespace", 3), std::nullopt);
  EXPECT_EQ(SplitTokens("two words", "sentencepiece", 2), std::nullopt);
}

TEST(TokenViewTest, TokensDoNothingToATerminal) {
  EXPECT_EQ(PrintableToken("caf\xc3\xa9 \xe2\x82\xac"), "caf\xc3\xa9 \xe2\x82\xac");
  EXPECT_EQ(PrintableToken("\n\r\t\x1b[1m\x7f"), "\\n\\r\\t\\x1B[1m\\x7F");
  EXPECT_EQ(PrintableToken("\xc3"), "\\xC3");
  EXPECT_EQ(PrintableToken("\xa9z"), "\\xA9z");
  EXPECT_EQ(PrintableToken("\xc2\x9b"), "\\xC2\\x9B");  // the control sequence introducer
  EXPECT_EQ(PrintableToken(std::string("\0", 1)), "\\x00");
}

TEST(TokenViewTest, TextForATerminalKeepsItsLines) {
  EXPECT_EQ(TerminalText("a\n\tb \xc3\xa4"), "a\n\tb \xc3\xa4");
  EXPECT_EQ(TerminalText("\r\x1b[1m\x7f\xc2\x9b\xc3"), "\\r\\x1B[1m\\x7F\\xC2\\x9B\\xC3");
}

TEST(TokenViewTest, ColorsFollowTheProbability) {
  const std::string line =
      ColoredTokens({{"a", std::nullopt}, {"b", std::log(0.6)}, {"c", std::log(1e-6)}});
  EXPECT_EQ(line, "a\x1b[30;48;5;157mb\x1b[0m\x1b[30;48;5;210mc\x1b[0m");
  for (const char* color : {"157", "229", "222", "216", "210"}) {
    EXPECT_THAT(ColorLegend(), HasSubstr(color));
  }
}

// A terminal cannot show half a character.
TEST(TokenViewTest, BytesOfACharacterShareAColor) {
  EXPECT_EQ(ColoredTokens({{"\xc3", std::log(0.6)}, {"\xa9", std::log(0.5)}}),
            "\x1b[30;48;5;229m\xc3\xa9\x1b[0m");
  // Bytes that are none, and one that the text ends in.
  EXPECT_THAT(ColoredTokens({{"\xc3", std::log(0.6)}, {"z", std::log(0.6)}}), HasSubstr("\\xC3z"));
  EXPECT_THAT(ColoredTokens({{"z", std::log(0.6)}, {"\xe2", std::log(0.6)}}), HasSubstr("\\xE2"));
  EXPECT_THAT(ColoredTokens({{"\x1b", std::log(0.6)}}), Not(HasSubstr("\x1b\x1b")));
}

TEST(TokenViewTest, ALogProbabilityInBits) {
  EXPECT_DOUBLE_EQ(Bits(std::log(0.25)), 2);
  EXPECT_FALSE(std::signbit(Bits(0)));
}

}  // namespace
}  // namespace sru::client
