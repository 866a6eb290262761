#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/text/code_point.h"
#include "models/text/tokenizers.h"
#include "nlohmann/json.hpp"
#include "tests/testing/checkpoints.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<TextSpan> Spans(const std::string& text, size_t limit = Tokenizer::kNoLimit) {
  std::vector<TextSpan> spans;
  const absl::Status status =
      SplitUnicodeWords(text, limit, [&](const TextSpan& span) { spans.push_back(span); });
  EXPECT_TRUE(status.ok()) << status;
  return spans;
}

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  for (const TextSpan& span : Spans(text)) words.emplace_back(span.Of(text));
  return words;
}

TEST(UnicodeWordTokenizerTest, Splits) {
  const struct {
    std::string text;
    std::vector<std::string> words;
  } kCases[] = {
      {"", {}},
      {" \t\n\u00a0\u3000\u2028\x1c", {}},
      {"Who's there?", {"Who", "'", "s", "there", "?"}},
      {"3,000.50", {"3", ",", "000", ".", "50"}},
      {"a_b--c", {"a", "_", "b", "-", "-", "c"}},
      {"x\u00b2 \u00bd \u2167 \u0664\u0662", {"x\u00b2", "\u00bd", "\u2167", "\u0664\u0662"}},
      {"\u4e2d\u6587\u5b57", {"\u4e2d\u6587\u5b57"}},
      {"e\u0301t\u0301", {"e\u0301t\u0301"}},
      {"\u0301a", {"\u0301a"}},
      {"\U0001f468\u200d\U0001f469", {"\U0001f468", "\u200d", "\U0001f469"}},
      {"a\u200bb\ufeff\u00adc", {"a", "\u200b", "b", "\ufeff", "\u00ad", "c"}},
      {std::string("a\0b\x7f", 4), {"a", std::string(1, '\0'), "b", "\x7f"}},
      {"\u20ac5 \u00a75", {"\u20ac", "5", "\u00a7", "5"}},
      {"\U00010400\U0001d7d8", {"\U00010400\U0001d7d8"}},
      {"\ue000", {"\ue000"}},  // private use
  };
  for (const auto& c : kCases) EXPECT_THAT(Words(c.text), ElementsAreArray(c.words)) << c.text;
}

TEST(UnicodeWordTokenizerTest, CountsBytesAndCodePoints) {
  const std::vector<TextSpan> spans = Spans("\u00e9\u00e9 \U0001f600b");
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].begin_byte, 0u);
  EXPECT_EQ(spans[0].end_byte, 4u);
  EXPECT_EQ(spans[0].end_char, 2u);
  EXPECT_EQ(spans[1].begin_byte, 5u);
  EXPECT_EQ(spans[1].end_byte, 9u);
  EXPECT_EQ(spans[1].begin_char, 3u);
  EXPECT_EQ(spans[1].end_char, 4u);
  EXPECT_EQ(spans[2].begin_byte, 9u);
  EXPECT_EQ(spans[2].end_char, 5u);
  EXPECT_EQ(Spans("a b c", 2).size(), 2u);
  EXPECT_THAT(Spans("a b c", 0), IsEmpty());
}

TEST(UnicodeWordTokenizerTest, LooksWordsUp) {
  const auto make = [](bool lowercase) {
    auto vocabulary = Vocabulary::Parse("<PAD>\n<UNK>\nwho\nWho\n?\n\u00e9t\u00e9\n", 6, "v");
    EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
    return MakeUnicodeWordTokenizer(*std::move(vocabulary), 1, lowercase);
  };
  EXPECT_THAT(*make(false)->Encode("Who who? WHO"), ElementsAre(3, 2, 4, 1));
  EXPECT_THAT(*make(true)->Encode("Who who? WHO \u00c9T\u00c9"), ElementsAre(2, 2, 4, 2, 5));
  // The symbols of the vocabulary cannot come from text.
  EXPECT_THAT(*make(false)->Encode("<PAD>"), ElementsAre(1, 1, 1));
  EXPECT_THAT(*make(true)->Encode("who who", 1), ElementsAre(2));
  const absl::Status status = make(true)->Encode("who \xe4").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not valid UTF-8 at byte 4"));
}

// What the reference implementation makes of texts chosen to be awkward.
TEST(UnicodeWordTokenizerTest, EqualsTheReference) {
  const std::filesystem::path path =
      sru::testing::CheckpointsDirectory().parent_path() / "golden_systems/reader/tokenizer.jsonl";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  std::ifstream file(path);
  int texts = 0;
  for (std::string line; std::getline(file, line); ++texts) {
    const nlohmann::json expected = nlohmann::json::parse(line);
    const auto text = expected["text"].get<std::string>();
    nlohmann::json tokens = nlohmann::json::array();
    for (const TextSpan& span : Spans(text)) {
      std::string lower;
      AppendLowerCase(span.Of(text), &lower);
      tokens.push_back({{"token", span.Of(text)},
                        {"start_char", span.begin_char},
                        {"end_char", span.end_char},
                        {"start_byte", span.begin_byte},
                        {"end_byte", span.end_byte},
                        {"lower", lower}});
    }
    EXPECT_EQ(tokens, expected["tokens"]) << line;
  }
  EXPECT_GE(texts, 10);
}

}  // namespace
}  // namespace sru::models
