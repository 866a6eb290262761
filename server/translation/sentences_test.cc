#include "server/translation/sentences.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/text/tokenizers.h"

namespace sru::server::translation {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<uint8_t> AllBytes() {
  std::vector<uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

std::vector<std::string> Texts(const std::string& text, const std::vector<TextRange>& ranges) {
  std::vector<std::string> texts;
  for (const TextRange& range : ranges) {
    texts.push_back(text.substr(range.begin, range.end - range.begin));
  }
  return texts;
}

std::vector<std::string> Split(const std::string& text, const std::string& language = "en",
                               Splitting splitting = Splitting::kSentences) {
  return Texts(text, SplitSentences(text, language, splitting));
}

TEST(SentencesTest, NoSentenceEndsAfterAnAbbreviation) {
  EXPECT_THAT(Split("Mr. Smith saw Dr. No. He ran!  Why?"),
              ElementsAre("Mr. Smith saw Dr. No.", "He ran!", "Why?"));
  EXPECT_THAT(Split("Er kam z.B. am Montag. Dann ging er.", "de"),
              ElementsAre("Er kam z.B. am Montag.", "Dann ging er."));
  EXPECT_THAT(Split("\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82\xE6\x88\x91\xE3\x80\x82", "zh"),
              ElementsAre("\xE4\xBD\xA0\xE5\xA5\xBD\xE3\x80\x82", "\xE6\x88\x91\xE3\x80\x82"));
  EXPECT_THAT(Split("One. Two.", "xx"), ElementsAre("One.", "Two."));
  // Longer words that end like one.
  EXPECT_THAT(Split("Dann ging er. Im Jahr 1990. Dann.", "de"),
              ElementsAre("Dann ging er.", "Im Jahr 1990.", "Dann."));
  EXPECT_THAT(Split("Etwa v. Chr. oder z. B. Er kam.", "de"),
              ElementsAre("Etwa v. Chr. oder z. B. Er kam."));
  EXPECT_THAT(Split("See No. 5 there. No. Why? (Mr. X)\nGo to Dr.\nHe."),
              ElementsAre("See No. 5 there.", "No.", "Why?", "(Mr. X)", "Go to Dr.", "He."));
}

TEST(SentencesTest, MarksOfListsAndEmojisStandBeforeASentence) {
  for (const char* const marks : {"\U0001F389", "\u2764\uFE0F \U0001F469\u200D\U0001F680", "#",
                                  "* *", ">", "\u2022", "-", "\u2013", "\u2192", "+"}) {
    EXPECT_THAT(Split(std::string(marks) + " One \u2022 two."), ElementsAre("One \u2022 two."))
        << marks;
    EXPECT_THAT(Split("One.\n" + std::string(marks) + "  Two"), ElementsAre("One.", "Two"))
        << marks;
  }
  for (const char* const text :
       {"#tag one", "*one* two", "\U0001F389one", "$ 5 dollars", "(a) b", "\"- a\" b"}) {
    EXPECT_THAT(Split(text), ElementsAre(text));
  }
}

TEST(SentencesTest, OrdinaryWordsOfIcusListsEndSentences) {
  EXPECT_THAT(
      Split("Das ist ein Test. Es ist so. Hier wohnt Max. Er geht am. Ja, am Mo. Gut.", "de"),
      ElementsAre("Das ist ein Test.", "Es ist so.", "Hier wohnt Max.", "Er geht am.", "Ja, am Mo.",
                  "Gut."));
  EXPECT_THAT(Split("Erst So. Dann Do. Ende.", "de"), ElementsAre("Erst So.", "Dann Do.", "Ende."));
  EXPECT_THAT(Split("It is OK. We go."), ElementsAre("It is OK.", "We go."));
}

TEST(SentencesTest, AbbreviationsThatIcusListsLack) {
  for (const char* const text :
       {"At 5 p.m. Monday it ends.", "At 5 a.m. Monday it ends.", "Acme Inc. Sells nothing.",
        "Acme Ltd. Sells nothing.", "Acme Corp. Sells nothing.", "Acme Co. Sells nothing.",
        "See Fig. A for it.", "Smith et al. Found it.", "The other (cf. Smith) is here."}) {
    EXPECT_THAT(Split(text), ElementsAre(text));
  }
  for (const char* const language : {"pl", "cs", "nl", "da"}) {
    for (const char* const text : {"a prof. Novak b.", "a dr. Novak b.", "a mr. Novak b."}) {
      EXPECT_THAT(Split(text, language), ElementsAre(text)) << language;
    }
  }
  EXPECT_THAT(Split("To np. Anna i inż. Nowak.", "pl"), ElementsAre("To np. Anna i inż. Nowak."));
  EXPECT_THAT(Split("Byl tu doc. Novak.", "cs"), ElementsAre("Byl tu doc. Novak."));
  EXPECT_THAT(Split("Hier is mevr. Jansen.", "nl"), ElementsAre("Hier is mevr. Jansen."));
}

TEST(SentencesTest, NoSentenceEndsBetweenAsciiCharactersWithoutASpace) {
  for (const char* const text :
       {"See https://example.com/watch?v=abc123 for details.", "Learn C++?\"or C.",
        "Use code!important here.", "Go to a.b/?Page=1 now."}) {
    EXPECT_THAT(Split(text), ElementsAre(text));
  }
  EXPECT_THAT(Split("Why? Go!\nNow?\xC2\xA0Yes."), ElementsAre("Why?", "Go!", "Now?", "Yes."));
  EXPECT_THAT(Split("你好?我很好!a", "zh"), ElementsAre("你好?", "我很好!a"));
  EXPECT_THAT(Split("a。b。", "zh"), ElementsAre("a。", "b。"));
}

TEST(SentencesTest, NoSentenceEndsAfterInitialsAndNumbersThatCount) {
  EXPECT_THAT(Split("J. K. Rowling met J.-P. Sartre. The U.S.S.R. Army left."),
              ElementsAre("J. K. Rowling met J.-P. Sartre.", "The U.S.S.R. Army left."));
  EXPECT_THAT(Split("1. Open it. 2. Close it. He is 30. Then he left."),
              ElementsAre("Open it.", "Close it.", "He is 30.", "Then he left."));
  EXPECT_THAT(Split("Am 3. Oktober kam Ludwig XIV. König zu sein.", "de"),
              ElementsAre("Am 3. Oktober kam Ludwig XIV. König zu sein."));
}

TEST(SentencesTest, WhatHasNoLettersIsNoSentence) {
  EXPECT_THAT(Split("12:30\n...\nA 1\n\xF0\x9F\x8E\x89"), ElementsAre("A 1"));
}

TEST(SentencesTest, LinesEndSentencesUnlessTheyAreWhiteSpace) {
  const std::string text = "  A line\nand another.\r\n\r\nA paragraph. \t";
  EXPECT_THAT(Split(text), ElementsAre("A line", "and another.", "A paragraph."));
  EXPECT_THAT(Split(text, "en", Splitting::kNoNewlines),
              ElementsAre("A line\nand another.", "A paragraph."));
  EXPECT_THAT(Split(text, "en", Splitting::kNone),
              ElementsAre("A line\nand another.\r\n\r\nA paragraph."));
  EXPECT_THAT(Split(" \n\t\xC2\xA0 "), IsEmpty());
  EXPECT_THAT(Split(""), IsEmpty());
}

TEST(SentencesTest, LongSentencesAreCutBeforeWords) {
  const auto tokenizer = models::MakeByteTokenizer(AllBytes());
  std::vector<TextRange> parts;
  const std::string text = "one two three four five six seven";
  ASSERT_TRUE(CutSentence(text, {4, text.size()}, *tokenizer, 12, &parts).ok());
  EXPECT_THAT(Texts(text, parts), ElementsAre("two three", "four", "five", "six seven"));
  parts.clear();
  ASSERT_TRUE(CutSentence(text, {0, text.size()}, *tokenizer, 100, &parts).ok());
  EXPECT_THAT(Texts(text, parts), ElementsAre(text));
}

TEST(SentencesTest, WithoutSpacesTheyAreCutBeforeCharacters) {
  const auto tokenizer = models::MakeByteTokenizer(AllBytes());
  const std::string character = "\xE4\xBD\xA0";
  std::string text;
  for (int i = 0; i < 7; ++i) text += character;
  std::vector<TextRange> parts;
  ASSERT_TRUE(CutSentence(text, {0, text.size()}, *tokenizer, 8, &parts).ok());
  std::string joined;
  for (const std::string& part : Texts(text, parts)) {
    EXPECT_LE(part.size(), 8u);
    EXPECT_EQ(part.size() % 3, 0u);
    joined += part;
  }
  EXPECT_EQ(joined, text);
  // A character of more tokens than there may be stays whole.
  parts.clear();
  ASSERT_TRUE(CutSentence(character, {0, 3}, *tokenizer, 2, &parts).ok());
  EXPECT_THAT(Texts(character, parts), ElementsAre(character));
}

// Markup can have a million of them.
TEST(SentencesTest, TextsWithoutLettersCostLittle) {
  const auto seconds = [](const std::string& text) {
    double best = 1e9;
    for (int round = 0; round < 3; ++round) {
      const std::clock_t begin = std::clock();
      for (int i = 0; i < 20000; ++i) SplitSentences(text, "en", Splitting::kNoNewlines);
      best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    }
    return best;
  };
  const double with_letters = seconds("a");
  for (const char* const text : {"", " ", "1."}) EXPECT_LT(4 * seconds(text), with_letters) << text;
}

TEST(SentencesTest, HostileTextsTakeLinearTime) {
  const auto tokenizer = models::MakeByteTokenizer(AllBytes());
  for (const char* const part :
       {". ", "Mr. ", "e.g. ", ".1", "a. B. ", "\"", ".)", "? ", "\n", "a", "A. ", "1. ", " "}) {
    std::string text;
    while (text.size() < 1 << 20) text += part;
    const auto start = std::chrono::steady_clock::now();
    std::vector<TextRange> parts;
    for (const TextRange& range : SplitSentences(text, "en", Splitting::kSentences)) {
      ASSERT_TRUE(CutSentence(text, range, *tokenizer, 127, &parts).ok());
    }
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << part;
  }
}

}  // namespace
}  // namespace sru::server::translation
