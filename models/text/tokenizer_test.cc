#include "models/text/tokenizer.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

std::unique_ptr<Vocabulary> Words() {
  auto vocabulary = Vocabulary::Parse("<unk>\n</s>\na\n", 3, "vocab.txt");
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  return *std::move(vocabulary);
}

std::vector<std::unique_ptr<const Tokenizer>> Tokenizers() {
  std::vector<uint8_t> bytes(256);
  for (int byte = 0; byte < 256; ++byte) bytes[byte] = static_cast<uint8_t>(byte);
  std::vector<std::unique_ptr<const Tokenizer>> tokenizers;
  tokenizers.push_back(MakeByteTokenizer(bytes));
  tokenizers.push_back(MakeCharacterTokenizer(Words(), 0));
  tokenizers.push_back(*MakeLineWordTokenizer(Words(), "vocab.txt"));
  tokenizers.push_back(MakeUnicodeWordTokenizer(Words(), 0, /*lowercase=*/true));
  for (const TokenizerType type : kPreprocessings) {
    tokenizers.push_back(
        MakeWordTokenizer(PreprocessingConfig{type, /*lowercase=*/true}, Words(), 0));
  }
  return tokenizers;
}

TEST(TokenizerTest, WhatIsUnknownHasOneId) {
  const auto tokenizers = Tokenizers();
  // Bytes are all known.
  EXPECT_EQ(tokenizers[0]->unknown_id(), Tokenizer::kNotFound);
  for (size_t i = 1; i < tokenizers.size(); ++i) {
    EXPECT_EQ(tokenizers[i]->unknown_id(), 0) << i;
    EXPECT_EQ(tokenizers[i]->Lookup("zz"), tokenizers[i]->unknown_id()) << i;
    EXPECT_EQ(*tokenizers[i]->Encode("z"), std::vector<int32_t>{0}) << i;
    EXPECT_NE(tokenizers[i]->Lookup("a"), tokenizers[i]->unknown_id()) << i;
  }
}

// One word that never ends, nothing but white space, many words, marks on marks, apostrophes.
// SentencePiece has a test of its own.
TEST(TokenizerTest, HostileTextTakesLinearTime) {
  constexpr size_t kBytes = size_t{1} << 20;
  for (const char* unit :
       {"a", " ", "\n", "a ", "e\u0301", "\u3000", "\U0001f600", "'", "n't", "\u4e2d"}) {
    std::string text;
    while (text.size() < kBytes) text += unit;
    for (const auto& tokenizer : Tokenizers()) {
      const auto begin = std::chrono::steady_clock::now();
      ASSERT_TRUE(tokenizer->Encode(text).ok());
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
      // A second with sanitizers; quadratic time would be a quarter of an hour.
      EXPECT_LT(seconds.count(), 30) << "unit '" << unit << "'";
    }
  }
}

TEST(TokenizerTest, NamesBytes) {
  EXPECT_EQ(ByteName(0), "<0x00>");
  EXPECT_EQ(ByteName(0xe4), "<0xE4>");
}

}  // namespace
}  // namespace sru::models
