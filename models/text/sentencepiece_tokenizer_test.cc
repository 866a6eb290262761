#include "models/text/sentencepiece_tokenizer.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/checkpoints.h"
#include "tests/testing/sentencepiece_file.h"

namespace sru::models {
namespace {

using sru::testing::SentencePieceFile;
using sru::testing::SmallSentencePieceFile;
using sru::testing::WireMessage;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::unique_ptr<SentencePieceTokenizer> Make(const SentencePieceFile& file) {
  auto tokenizer = SentencePieceTokenizer::Parse(file.bytes(), static_cast<int>(file.pieces.size()),
                                                 "spm.model");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return tokenizer.ok() ? *std::move(tokenizer) : nullptr;
}

TEST(SentencePieceTokenizerTest, UnigramTakesTheMostProbablePieces) {
  const auto tokenizer = Make(SmallSentencePieceFile());
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->size(), 10);
  EXPECT_THAT(*tokenizer->Encode(""), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode("   "), IsEmpty());
  // -5 (abc) and -2 (space) against -2.5 (space a), -3.5 (b), -4 (c).
  EXPECT_THAT(*tokenizer->Encode("abc"), ElementsAre(6, 9));
  // -2.5 (space a) and -3.5 (b) against -2 (space) and -4 (ab): equal, so the longer last piece,
  // found first, stays.
  EXPECT_THAT(*tokenizer->Encode("ab"), ElementsAre(6, 7));
  EXPECT_THAT(*tokenizer->Encode("  b   c "), ElementsAre(6, 4, 6, 5));
  EXPECT_THAT(*tokenizer->Encode("b c", 3), ElementsAre(6, 4, 6));
  EXPECT_THAT(*tokenizer->Encode("b c", 0), IsEmpty());
}

TEST(SentencePieceTokenizerTest, BpeMergesTheBestPairFirst) {
  SentencePieceFile file = SmallSentencePieceFile();
  file.algorithm = 2;
  const auto tokenizer = Make(file);
  ASSERT_NE(tokenizer, nullptr);
  // The best pair of " abc" is the space and a; then nothing goes with it.
  EXPECT_THAT(*tokenizer->Encode("abc"), ElementsAre(8, 4, 5));
  EXPECT_THAT(*tokenizer->Encode("babc"), ElementsAre(6, 4, 9));
  EXPECT_THAT(*tokenizer->Encode("b a"), ElementsAre(6, 4, 8));
}

TEST(SentencePieceTokenizerTest, NeighboringUnknownCharactersAreOneToken) {
  for (const int algorithm : {1, 2}) {
    SentencePieceFile file = SmallSentencePieceFile();
    file.algorithm = algorithm;
    const auto tokenizer = Make(file);
    EXPECT_THAT(*tokenizer->Encode("bxyz\u4e2db x"), ElementsAre(6, 4, 0, 4, 6, 0));
    EXPECT_EQ(tokenizer->detokenizer()->Decode({6, 4, 0, 4}), "b \u2047 b");
  }
}

TEST(SentencePieceTokenizerTest, FallsBackToBytes) {
  SentencePieceFile file = SmallSentencePieceFile();
  file.byte_fallback = true;
  for (int byte = 0; byte < 256; ++byte) {
    file.pieces.push_back({ByteName(static_cast<unsigned char>(byte)), 0.0f, 6});
  }
  const auto tokenizer = Make(file);
  ASSERT_NE(tokenizer, nullptr);
  const std::vector<int32_t> ids = *tokenizer->Encode("b\u00e9x");
  EXPECT_THAT(ids, ElementsAre(6, 4, 10 + 0xc3, 10 + 0xa9, 10 + 'x'));
  EXPECT_THAT(*tokenizer->Encode("b\u00e9x", 3), ElementsAre(6, 4, 10 + 0xc3));
  EXPECT_EQ(tokenizer->detokenizer()->Decode(ids), "b\u00e9x");
  // A part of a character is left to the caller.
  EXPECT_EQ(tokenizer->detokenizer()->Decode({6, 4, 10 + 0xc3}), "b\xc3");
  EXPECT_EQ(tokenizer->TokenName(10 + 0xc3), "<0xC3>");
}

TEST(SentencePieceTokenizerTest, UserDefinedPiecesAreKeptWhole) {
  for (const int algorithm : {1, 2}) {
    SentencePieceFile file = SmallSentencePieceFile();
    file.algorithm = algorithm;
    file.pieces.push_back({"cab", 0.0f, 4});
    const auto tokenizer = Make(file);
    EXPECT_THAT(*tokenizer->Encode("bcabc"), ElementsAre(6, 4, 10, 5)) << algorithm;
    EXPECT_EQ(tokenizer->detokenizer()->Decode({6, 4, 10, 5}), "bcabc");
  }
}

TEST(SentencePieceTokenizerTest, ControlPiecesHaveNoText) {
  const auto tokenizer = Make(SmallSentencePieceFile());
  EXPECT_EQ(tokenizer->detokenizer()->Decode({1, 8, 4, 6, 5, 2}), "ab c");
  EXPECT_THAT(*tokenizer->Encode("<s>"), ElementsAre(6, 0));
  EXPECT_EQ(tokenizer->Lookup("</s>"), 2);
  EXPECT_EQ(tokenizer->Lookup("\u2581a"), 8);
  EXPECT_EQ(tokenizer->Lookup("nothing"), 0);
}

TEST(SentencePieceTokenizerTest, KeepsSpacesIfAskedTo) {
  SentencePieceFile file = SmallSentencePieceFile();
  file.remove_extra_whitespaces = false;
  const auto with_prefix = Make(file);
  EXPECT_THAT(*with_prefix->Encode(" b  c "), ElementsAre(6, 6, 4, 6, 6, 5, 6));
  EXPECT_EQ(with_prefix->detokenizer()->Decode({6, 6, 4, 6, 6, 5, 6}), " b  c ");
  file.add_dummy_prefix = false;
  EXPECT_THAT(*Make(file)->Encode("b "), ElementsAre(4, 6));
  EXPECT_EQ(Make(file)->detokenizer()->Decode({6, 4}), " b");
}

// Compiled rules with a single one: a full-width a becomes `replacement`. The trie is a double
// array, written by hand.
std::string OneRule(const std::string& replacement = "a") {
  std::vector<uint32_t> units(1024);
  const auto unit = [](uint32_t offset, uint32_t label, bool leaf) {
    return offset << 10 | (leaf ? 1u << 8 : 0u) | label;
  };
  units[0] = unit(0x100, 0, false);
  units[0x100 ^ 0xef] = unit(0x100 ^ 0xef ^ 0x200, 0xef, false);
  units[0x200 ^ 0xbd] = unit(0x200 ^ 0xbd ^ 0x300, 0xbd, false);
  units[0x300 ^ 0x81] = unit(0x300 ^ 0x81 ^ 0x80, 0x81, true);
  units[0x80] = 1u << 31;  // the value 0
  const auto bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string rules(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
  rules.append(reinterpret_cast<const char*>(units.data()), bytes);
  return rules + replacement + '\0';
}

TEST(SentencePieceTokenizerTest, ReplacesCharacters) {
  SentencePieceFile file = SmallSentencePieceFile();
  file.character_map = OneRule();
  // Full-width a and b: the rules have only the first.
  EXPECT_THAT(*Make(file)->Encode("\uff41bc"), ElementsAre(6, 9));
  EXPECT_THAT(*Make(file)->Encode("b\uff42"), ElementsAre(6, 4, 0));
  SentencePieceFile longest = file;
  longest.character_map = OneRule(std::string(255, 'x') + "b");
  EXPECT_THAT(*Make(longest)->Encode("\uff41c"), ElementsAre(6, 0, 4, 5));
  // Every cut of the rules is refused or does no harm.
  for (size_t size = 1; size < file.character_map.size(); size += 97) {
    SentencePieceFile cut = file;
    cut.character_map.resize(size);
    auto tokenizer = SentencePieceTokenizer::Parse(cut.bytes(), 10, "spm.model");
    EXPECT_TRUE(!tokenizer.ok() || (*tokenizer)->Encode("\uff41bc").ok());
  }
}

TEST(SentencePieceTokenizerTest, RefusesBadModels) {
  const std::string good = SmallSentencePieceFile().bytes();
  const auto changed = [](const std::function<void(SentencePieceFile&)>& change) {
    SentencePieceFile file = SmallSentencePieceFile();
    change(file);
    return file.bytes();
  };
  const struct {
    std::string bytes;
    std::string message;
  } kCases[] = {
      {"", "not a SentencePiece model"},
      {good +
           WireMessage().Bytes(2, WireMessage().Bytes(44, std::string(1025, '?')).bytes()).bytes(),
       "unk_surface: expected at most 1024 bytes, found 1025"},
      {"garbage", "not a SentencePiece model"},
      {good.substr(0, good.size() - 3), "not a SentencePiece model"},
      {changed([](auto& f) { f.pieces.pop_back(); }), "expected 10 pieces"},
      {changed([](auto& f) { f.pieces[3].text = ""; }), "piece 3 is empty"},
      {changed([](auto& f) { f.pieces[3].text = "b"; }), "piece 4 repeats another"},
      {changed([](auto& f) { f.pieces[3].text = "\xff"; }), "piece 3 is not valid UTF-8"},
      {changed([](auto& f) { f.pieces[3].text = std::string(1025, 'a'); }), "at most 1024 bytes"},
      {changed([](auto& f) { f.pieces[3].score = 0.0f / 0.0f; }), "piece 3: expected a finite"},
      {changed([](auto& f) { f.pieces[3].kind = 7; }), "expected a type from 1 to 6, found 7"},
      {changed([](auto& f) { f.pieces[3].kind = 2; }), "expected one unknown piece, found 0 and 3"},
      {changed([](auto& f) { f.pieces[0].kind = 1; }), "expected an unknown piece, found none"},
      {changed([](auto& f) { f.pieces[3].kind = 6; }), "piece 3 is a byte"},
      {changed([](auto& f) { f.byte_fallback = true; }), "found none for <0x00>"},
      {changed([](auto& f) { f.algorithm = 3; }), "expected model_type 1 (unigram) or 2 (bpe)"},
      {changed([](auto& f) { f.character_map = "abc"; }), "the rules are damaged"},
      {changed([](auto& f) { f.character_map = std::string(4, '\xff') + "abc"; }), "damaged"},
      {changed([](auto& f) { f.character_map = OneRule(std::string(257, 'a')); }),
       "precompiled_charsmap: expected replacements of at most 256 bytes, found 257"},
      {WireMessage().Bytes(2, WireMessage().Varint(24, 1).bytes()).bytes() + good,
       "treat_whitespace_as_suffix: expected false"},
      {WireMessage().Bytes(5, WireMessage().Bytes(2, "x").bytes()).bytes() + good,
       "denormalizer_spec"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = SentencePieceTokenizer::Parse(c.bytes, 10, "m/spm.model").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("m/spm.model: "), HasSubstr(c.message)));
  }
  const absl::Status invalid = Make(SmallSentencePieceFile())->Encode("ab\xff").status();
  EXPECT_THAT(std::string(invalid.message()), HasSubstr("not valid UTF-8 at byte 2"));
}

// Pieces that could go on forever, unknown characters that could be joined one by one, and
// characters that could be replaced.
TEST(SentencePieceTokenizerTest, HostileTextTakesLinearTime) {
  for (const int algorithm : {1, 2}) {
    SentencePieceFile file = SmallSentencePieceFile();
    file.algorithm = algorithm;
    for (int length = 2; length <= 16; ++length) {
      file.pieces.push_back({std::string(length, 'a') + "c", -1.0f});
      file.pieces.push_back({std::string(length, 'a'), -2.0f - static_cast<float>(length)});
    }
    const auto tokenizer = Make(file);
    const size_t kBytes = 1 << 19;
    for (const std::string& unit :
         {std::string("a"), std::string("x"), std::string(" "), std::string("\u4e2d"),
          std::string("ab "), std::string("\u2581")}) {
      std::string text;
      while (text.size() < kBytes) text += unit;
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_TRUE(tokenizer->Encode(text).ok());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      // A second or less even with sanitizers; quadratic time would be minutes.
      EXPECT_LT(seconds.count(), 30) << "unit '" << unit << "', algorithm " << algorithm;
    }
  }
}

// A limit on tokens changes neither them nor those before them, wherever a long text is cut.
TEST(SentencePieceTokenizerTest, ALimitGivesTheFirstTokensOfTheWhole) {
  for (const int algorithm : {1, 2}) {
    SentencePieceFile file = SmallSentencePieceFile();
    file.algorithm = algorithm;
    for (int length = 2; length <= 9; ++length) {
      file.pieces.push_back({std::string(length, 'a') + "c", -1.0f});
      file.pieces.push_back({std::string(length, 'a'), -2.0f - static_cast<float>(length)});
    }
    file.pieces.push_back({"qu", -3.0f});  // of characters that are no pieces
    const auto tokenizer = Make(file);
    std::mt19937 random(7);
    for (const std::string_view letters :
         {"a", "aab", "abc", "ab c", "aaaaaaac", "axb", "xx xxxa", "quab", "q"}) {
      // The pieces of the most probable path overlap all the way, and which of them is a shorter
      // one depends on where the text ends.
      if (algorithm == 1 && letters == "a") continue;
      for (const size_t length : {100, 3000, 20000}) {
        std::string text(length, 'a');
        for (char& letter : text) letter = letters[random() % letters.size()];
        if (length == 20000) text.insert(0, 5000, 'x');
        const std::vector<int32_t> all = *tokenizer->Encode(text);
        for (const size_t most : {size_t{1}, size_t{2}, size_t{33}, size_t{500}, all.size()}) {
          const std::vector<int32_t> expected(all.begin(),
                                              all.begin() + std::min(most, all.size()));
          EXPECT_EQ(*tokenizer->Encode(text, most), expected)
              << letters << " " << length << " " << most << ", algorithm " << algorithm;
        }
      }
    }
  }
}

// A word costs as much as the tokens that are wanted of it, however long it is.
TEST(SentencePieceTokenizerTest, AWordWithoutAnEndIsNotReadToItsEnd) {
  for (const int algorithm : {1, 2}) {
    SentencePieceFile file = SmallSentencePieceFile();
    file.algorithm = algorithm;
    for (int length = 2; length <= 16; ++length) {
      file.pieces.push_back({std::string(length, 'a'), -2.0f - static_cast<float>(length)});
    }
    const auto tokenizer = Make(file);
    const std::string text(size_t{1} << 18, 'a');
    const auto seconds = [&](size_t most) {
      double best = 1e9;
      for (int round = 0; round < 3; ++round) {
        const std::clock_t begin = std::clock();
        EXPECT_TRUE(tokenizer->Encode(text, most).ok());
        best = std::min(best, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
      }
      return best;
    };
    EXPECT_LT(seconds(100), seconds(Tokenizer::kNoLimit) / 8) << algorithm;
  }
}

// The model of a trained translator, and what the library made of its sentences.
TEST(SentencePieceTokenizerTest, EqualsTheLibraryOnATrainedModel) {
  const std::filesystem::path folder = sru::testing::CheckpointsDirectory() / "translator_multi30k";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  std::ifstream model(folder / "spm.model", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(model), {});
  auto tokenizer = SentencePieceTokenizer::Parse(bytes, 6000, "spm.model");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  std::ifstream file(folder / "expected.jsonl");
  int sentences = 0;
  for (std::string line; std::getline(file, line); ++sentences) {
    const nlohmann::json expected = nlohmann::json::parse(line);
    const auto ids = (*tokenizer)->Encode(expected["source"].get<std::string>());
    ASSERT_TRUE(ids.ok()) << ids.status();
    EXPECT_EQ(*ids, expected["source_ids"].get<std::vector<int32_t>>());
    std::vector<std::string> names;
    for (const int32_t id : *ids) names.push_back((*tokenizer)->TokenName(id));
    if (std::find(ids->begin(), ids->end(), 1) == ids->end()) {
      EXPECT_THAT(names, ElementsAreArray(expected["pieces"].get<std::vector<std::string>>()));
    }
    for (const char* search : {"greedy", "beam5_best"}) {
      const nlohmann::json& target = expected[search];
      EXPECT_EQ((*tokenizer)->detokenizer()->Decode(target["tokens"].get<std::vector<int32_t>>()),
                target["text"].get<std::string>());
    }
  }
  EXPECT_EQ(sentences, 300);
}

}  // namespace
}  // namespace sru::models
