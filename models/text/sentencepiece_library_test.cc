// Our SentencePiece against the library, on models that the library trains on words made up here.
#include "tests/testing/sentencepiece_library.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "models/text/sentencepiece_tokenizer.h"

namespace sru::models {
namespace {

using sru::testing::SentencePieceLibrary;
using sru::testing::TrainSentencePiece;

class TextMaker {
 public:
  std::string Word() {
    static const std::vector<std::string> kSyllables = {
        "ka", "to", "mi",     "ren",     "sa",     "lo",     "ing", "er",
        "un", "da", "\u00e9", "\u00fcl", "\u4e2d", "\u6587", "3",   "."};
    std::string word;
    // Short words, and some syllables, are frequent.
    for (size_t n = 1 + random_() % 4; n > 0; --n) {
      word += kSyllables[random_() % (1 + random_() % kSyllables.size())];
    }
    return word;
  }

  std::string Sentence() {
    std::string sentence = Word();
    for (size_t n = random_() % 12; n > 0; --n) sentence += " " + Word();
    return sentence;
  }

  // Words among what a normalizer, a user-defined piece or nobody knows.
  std::string Awkward() {
    static const std::vector<std::string> kPieces = {
        " ",      "  ",     "\t",      "\n",           "\u00a0",     "\u3000",
        "\u2581", "x",      "qq",      "\u0416",       "\U0001f600", "<s>",
        "</s>",   "<unk>",  "<0x41>",  "<sep>",        "<sepp",      "\uff41\uff42",
        "\ufb01", "\u00bd", "e\u0301", "\u1100\u1161", "\u200b",     "\u00ad",
        "\x01",   "KATO",   "\u2460"};
    std::string text;
    for (size_t n = random_() % 10; n > 0; --n) {
      text += random_() % 2 == 0 ? Word() : kPieces[random_() % kPieces.size()];
    }
    return text;
  }

  uint32_t Number() { return random_(); }

 private:
  std::mt19937 random_{20240601};
};

// Other pieces of the same score are as good: rounding decides which are found, and the library
// sums in another way since its version 0.2.
void ExpectAsGood(const std::vector<int32_t>& ids, const std::vector<int>& expected,
                  const SentencePieceLibrary& library) {
  if (std::equal(ids.begin(), ids.end(), expected.begin(), expected.end())) return;
  double score = 0;
  double expected_score = 0;
  for (const int32_t id : ids) score += library.Score(id);
  for (const int id : expected) expected_score += library.Score(id);
  ASSERT_NEAR(score, expected_score, 1e-6 * std::abs(expected_score));
  ASSERT_EQ(library.Decode({ids.begin(), ids.end()}), library.Decode(expected));
}

class SentencePieceLibraryTest
    : public ::testing::TestWithParam<std::map<std::string, std::string>> {};

TEST_P(SentencePieceLibraryTest, GivesTheSameIdsAndTexts) {
  TextMaker maker;
  std::vector<std::string> sentences;
  for (int i = 0; i < 400; ++i) sentences.push_back(maker.Sentence());
  std::map<std::string, std::string> options = GetParam();
  options["minloglevel"] = "3";
  options["hard_vocab_limit"] = "false";
  if (options.count("vocab_size") == 0) options["vocab_size"] = "150";
  const std::string model = TrainSentencePiece(options, sentences);
  ASSERT_FALSE(model.empty());
  const SentencePieceLibrary library(model);
  ASSERT_TRUE(library.ok());
  auto tokenizer = SentencePieceTokenizer::Parse(model, library.size(), "spm.model");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const Detokenizer& detokenizer = *(*tokenizer)->detokenizer();

  for (int i = 0; i < 5000; ++i) {
    const std::string text = i % 4 == 0 ? maker.Sentence() : maker.Awkward();
    const std::vector<int> expected = library.Encode(text);
    auto ids = (*tokenizer)->Encode(text);
    ASSERT_TRUE(ids.ok()) << ids.status();
    ASSERT_NO_FATAL_FAILURE(ExpectAsGood(*ids, expected, library)) << text;
    ASSERT_EQ(detokenizer.Decode(*ids), library.Decode(expected)) << text;
  }
  // Ids that no text gives. Bytes are left out: here they may be no UTF-8, which the library
  // replaces.
  for (int i = 0; i < 1000; ++i) {
    std::vector<int> ids;
    for (size_t n = maker.Number() % 6; n > 0; --n) {
      const int id = static_cast<int>(maker.Number() % static_cast<uint32_t>(library.size()));
      if (!library.IsByte(id)) ids.push_back(id);
    }
    ASSERT_EQ(detokenizer.Decode({ids.begin(), ids.end()}), library.Decode(ids));
  }
  // A long text, so that sums of scores are rounded.
  std::string text;
  for (int i = 0; i < 500; ++i) text += maker.Sentence() + " " + maker.Awkward();
  ExpectAsGood(*(*tokenizer)->Encode(text), library.Encode(text), library);
}

using Options = std::map<std::string, std::string>;

INSTANTIATE_TEST_SUITE_P(
    Models, SentencePieceLibraryTest,
    ::testing::Values(Options{{"model_type", "unigram"}, {"normalization_rule_name", "identity"}},
                      Options{{"model_type", "unigram"}, {"normalization_rule_name", "nmt_nfkc"}},
                      Options{{"model_type", "unigram"},
                              {"normalization_rule_name", "nfkc_cf"},
                              {"user_defined_symbols", "<sep>,ren"}},
                      Options{{"model_type", "unigram"},
                              {"byte_fallback", "true"},
                              {"vocab_size", "450"},
                              {"split_by_whitespace", "false"}},
                      Options{{"model_type", "unigram"},
                              {"remove_extra_whitespaces", "false"},
                              {"add_dummy_prefix", "false"}},
                      Options{{"model_type", "unigram"}, {"remove_extra_whitespaces", "false"}},
                      Options{{"model_type", "bpe"}, {"normalization_rule_name", "identity"}},
                      Options{{"model_type", "bpe"},
                              {"normalization_rule_name", "nmt_nfkc"},
                              {"user_defined_symbols", "<sep>,ren"}},
                      Options{
                          {"model_type", "bpe"}, {"byte_fallback", "true"}, {"vocab_size", "450"}},
                      Options{{"model_type", "bpe"},
                              {"split_by_whitespace", "false"},
                              {"remove_extra_whitespaces", "false"}}));

}  // namespace
}  // namespace sru::models
