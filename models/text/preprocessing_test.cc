#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/ascii.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/enum_names.h"
#include "models/text/tokenizers.h"
#include "nlohmann/json.hpp"
#include "re2/re2.h"
#include "tests/testing/checkpoints.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

std::vector<std::string> Words(const PreprocessingConfig& config, const std::string& text,
                               size_t max_words = Tokenizer::kNoLimit) {
  std::vector<std::string> words;
  const absl::Status status =
      SplitWords(config, text, max_words,
                 [&](std::string_view word, size_t, size_t) { words.emplace_back(word); });
  EXPECT_TRUE(status.ok()) << status;
  return words;
}

// The definition, step by step: one replacement after the other, then a split on spaces.
std::vector<std::string> SentenceOracle(std::string text, bool lowercase) {
  struct Step {
    RE2 pattern;
    std::string replacement;
  };
  static const Step kSteps[] = {{"[^A-Za-z0-9(),!?'`]", " "},
                                {"'s", " 's"},
                                {"'ve", " 've"},
                                {"n't", " n't"},
                                {"'re", " 're"},
                                {"'d", " 'd"},
                                {"'ll", " 'll"},
                                {",", " , "},
                                {"!", " ! "},
                                {"\\(", " ( "},
                                {"\\)", " ) "},
                                {"\\?", " ? "},
                                {" {2,}", " "}};
  static const RE2 kWord("([^ ]+)");
  for (const Step& step : kSteps) RE2::GlobalReplace(&text, step.pattern, step.replacement);
  if (lowercase) absl::AsciiStrToLower(&text);
  std::vector<std::string> words;
  re2::StringPiece rest(text);
  std::string word;
  while (RE2::FindAndConsume(&rest, kWord, &word)) words.push_back(word);
  return words;
}

TEST(PreprocessingTest, SentenceClassification) {
  const PreprocessingConfig keep{TokenizerType::kSentenceClassification, false};
  const struct {
    std::string text;
    std::vector<std::string> words;
  } kCases[] = {
      {"", {}},
      {" \t. ;", {}},
      {"What is it?", {"What", "is", "it", "?"}},
      {"It's John's; we've, they'd", {"It", "'s", "John", "'s", "we", "'ve", ",", "they", "'d"}},
      {"isn't can't n't", {"is", "n't", "ca", "n't", "n't"}},
      {"you're I'll we'llo", {"you", "'re", "I", "'ll", "we", "'llo"}},
      {"(a,b)!?", {"(", "a", ",", "b", ")", "!", "?"}},
      {"`quoted' 'tis rock'n'roll", {"`quoted'", "'tis", "rock'n'roll"}},
      {"'s''s", {"'s'", "'s"}},
      {"n'tn't", {"n't", "n't"}},
      {"caf\u00e9 na\u00efve \u20ac5", {"caf", "na", "ve", "5"}},
      {"e-mail a.b.c 3.14", {"e", "mail", "a", "b", "c", "3", "14"}},
      {"IT'S DON'T", {"IT'S", "DON'T"}},  // contractions are lower-case ones
  };
  for (const auto& c : kCases) {
    EXPECT_THAT(Words(keep, c.text), ElementsAreArray(c.words)) << c.text;
    EXPECT_THAT(SentenceOracle(c.text, false), ElementsAreArray(c.words)) << c.text;
  }
  const PreprocessingConfig lower{TokenizerType::kSentenceClassification, true};
  EXPECT_THAT(Words(lower, "What IS N't It's"), ElementsAre("what", "is", "n't", "it", "'s"));
}

// One scan must equal the replacements one after the other, whatever the text.
TEST(PreprocessingTest, SentenceClassificationEqualsItsDefinition) {
  const std::vector<std::string> pieces = {"'",
                                           "s",
                                           "'s",
                                           "'ve",
                                           "n",
                                           "t",
                                           "n't",
                                           "'re",
                                           "'d",
                                           "'ll",
                                           "l",
                                           "d",
                                           "v",
                                           "e",
                                           "r",
                                           ",",
                                           "!",
                                           "(",
                                           ")",
                                           "?",
                                           "`",
                                           " ",
                                           "  ",
                                           "\t",
                                           "\n",
                                           "-",
                                           "A",
                                           "Z",
                                           "N",
                                           "0",
                                           "9",
                                           ".",
                                           "\u00e9",
                                           "\u00a0",
                                           "\u3000",
                                           "\U0001f600",
                                           std::string(1, '\0')};
  std::mt19937 random(20240501);
  for (const bool lowercase : {false, true}) {
    const PreprocessingConfig preprocessing{TokenizerType::kSentenceClassification, lowercase};
    for (int i = 0; i < 20000; ++i) {
      std::string text;
      for (size_t n = random() % 16; n > 0; --n) text += pieces[random() % pieces.size()];
      ASSERT_EQ(Words(preprocessing, text), SentenceOracle(text, lowercase)) << text;
    }
  }
}

TEST(PreprocessingTest, Whitespace) {
  const PreprocessingConfig preprocessing{TokenizerType::kWhitespace, false};
  EXPECT_THAT(Words(preprocessing, ""), IsEmpty());
  EXPECT_THAT(Words(preprocessing, " \u3000\u00a0\n"), IsEmpty());
  EXPECT_THAT(Words(preprocessing, "Don't  split,\tplease. "),
              ElementsAre("Don't", "split,", "please."));
  EXPECT_THAT(Words(preprocessing, "\u4e2d\u3000\u6587"), ElementsAre("\u4e2d", "\u6587"));
  const std::string nul("a\0b c", 5);
  EXPECT_THAT(Words(preprocessing, nul), ElementsAre(std::string("a\0b", 3), "c"));
}

// The white space of Python's str.split(), and nothing else in Unicode.
TEST(PreprocessingTest, WhitespaceIsPythons) {
  const PreprocessingConfig preprocessing{TokenizerType::kWhitespace, false};
  const auto is_space = [](int c) {
    return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
  };
  for (int c = 0; c <= 0x10ffff; ++c) {
    if (c >= 0xd800 && c <= 0xdfff) continue;
    std::string text = "a";
    if (c < 0x80) {
      text += static_cast<char>(c);
    } else if (c < 0x800) {
      text += static_cast<char>(0xc0 | c >> 6);
    } else if (c < 0x10000) {
      text += static_cast<char>(0xe0 | c >> 12);
      text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    } else {
      text += static_cast<char>(0xf0 | c >> 18);
      text += static_cast<char>(0x80 | (c >> 12 & 0x3f));
      text += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    }
    if (c >= 0x80) text += static_cast<char>(0x80 | (c & 0x3f));
    text += "b";
    size_t words = 0;
    ASSERT_TRUE(
        SplitWords(preprocessing, text, 9, [&](std::string_view, size_t, size_t) { ++words; }).ok())
        << c;
    ASSERT_EQ(words, is_space(c) ? 2u : 1u) << std::hex << c;
  }
}

TEST(PreprocessingTest, Lowercase) {
  const PreprocessingConfig preprocessing{TokenizerType::kLowercase, false};
  EXPECT_THAT(Words(preprocessing, "The \u00c9COLE, It's\u00a0OK"),
              ElementsAre("the", "\u00e9cole,", "it's", "ok"));
}

TEST(PreprocessingTest, StopsAfterMaxWords) {
  for (const TokenizerType type : kPreprocessings) {
    const PreprocessingConfig preprocessing{type, true};
    const std::vector<std::string> all = {"a", "b", "!", "c", "!", "d"};
    const std::string text =
        type == TokenizerType::kSentenceClassification ? "a b! c!d" : "a b ! c ! d";
    for (size_t max_words = 0; max_words <= 8; ++max_words) {
      EXPECT_THAT(Words(preprocessing, text, max_words),
                  ElementsAreArray(all.begin(), all.begin() + std::min(max_words, all.size())));
    }
  }
}

TEST(PreprocessingTest, RefusesInvalidUtf8) {
  for (const TokenizerType type : kPreprocessings) {
    const PreprocessingConfig preprocessing{type, false};
    const absl::Status status = SplitWords(preprocessing, "good bad\xff", 1,
                                           [](std::string_view, size_t, size_t) { FAIL(); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "not valid UTF-8 at byte 8");
  }
}

TEST(PreprocessingTest, AnUnknownTypeIsAnErrorAndNotWhiteSpace) {
  const PreprocessingConfig preprocessing{static_cast<TokenizerType>(9), false};
  const absl::Status status =
      SplitWords(preprocessing, "a b", 2, [](std::string_view, size_t, size_t) { FAIL(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(status.message(), "no such preprocessing, 9");
}

// Every sentence of the checkpoints' test sets, where they are at hand.
TEST(PreprocessingTest, EqualsTheTokensOfTheCheckpoints) {
  const std::filesystem::path directory = testing::CheckpointsDirectory();
  if (!std::filesystem::exists(directory)) {
    GTEST_SKIP() << directory << " is absent; set SRU_SHARED_DIR to the directory that has it";
  }
  const struct {
    std::string name;
    PreprocessingConfig config;
    int sentences;
  } kCases[] = {{"trec", {TokenizerType::kSentenceClassification, false}, 500},
                {"sst2", {TokenizerType::kWhitespace, false}, 1821},
                {"subj", {TokenizerType::kSentenceClassification, true}, 1000}};
  for (const auto& c : kCases) {
    std::ifstream file(directory / c.name / "expected.jsonl");
    int sentences = 0;
    for (std::string line; std::getline(file, line); ++sentences) {
      const nlohmann::json expected = nlohmann::json::parse(line);
      EXPECT_THAT(Words(c.config, expected["text"]),
                  ElementsAreArray(expected["tokens"].get<std::vector<std::string>>()));
    }
    EXPECT_EQ(sentences, c.sentences) << c.name;
  }
}

}  // namespace
}  // namespace sru::models
