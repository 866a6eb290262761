#include "models/tokenizer.h"

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::unique_ptr<Tokenizer> MakeTokenizer(PreprocessingConfig config) {
  auto vocabulary = Vocabulary::Parse("<pad>\n<oov>\nhow\nHow\n?\n'll\n", 6, "vocab.txt");
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  return std::make_unique<Tokenizer>(config, *std::move(vocabulary), /*oov_id=*/1);
}

TEST(TokenizerTest, EncodesText) {
  const auto tokenizer = MakeTokenizer({PreprocessingType::kSentenceClassification, false});
  EXPECT_THAT(*tokenizer->Encode("How, how'll?"), ElementsAre(3, 1, 2, 5, 4));
  EXPECT_THAT(*tokenizer->Encode("How, how'll?", 2), ElementsAre(3, 1));
  EXPECT_THAT(*tokenizer->Encode("How, how'll?", 0), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode(""), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode(" . "), IsEmpty());
  // The text <oov> is a word that the vocabulary has only for its own use, but finds.
  EXPECT_THAT(*MakeTokenizer({PreprocessingType::kWhitespace, false})->Encode("<pad> <oov>"),
              ElementsAre(0, 1));
  EXPECT_THAT(*MakeTokenizer({PreprocessingType::kLowercase, false})->Encode("HOW How? ?"),
              ElementsAre(2, 1, 4));
}

TEST(TokenizerTest, RefusesInvalidUtf8) {
  const auto tokenizer = MakeTokenizer({PreprocessingType::kWhitespace, false});
  EXPECT_EQ(tokenizer->Encode("how \xff").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(TokenizerTest, LooksUpWordsAsTheyAre) {
  const auto tokenizer = MakeTokenizer({PreprocessingType::kLowercase, false});
  EXPECT_EQ(tokenizer->Lookup("How"), 3);
  EXPECT_EQ(tokenizer->Lookup("HOW"), tokenizer->oov_id());
  EXPECT_EQ(tokenizer->Lookup(""), tokenizer->oov_id());
  EXPECT_EQ(tokenizer->Lookup("how ?"), tokenizer->oov_id());
}

// The bundled model's vocabulary and the tokens that an independent implementation makes.
TEST(TokenizerTest, EncodesTheBundledQuestions) {
  auto config = ReadModelConfig("models/pretrained/trec/1/config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  auto vocabulary =
      Vocabulary::Read("models/pretrained/trec/1/vocab.txt", config->embedding.vocabulary_size);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  const Tokenizer tokenizer(config->preprocessing, *std::move(vocabulary),
                            config->embedding.oov_id);
  std::ifstream file("tests/data/trec_questions.jsonl");
  int questions = 0;
  for (std::string line; std::getline(file, line); ++questions) {
    const nlohmann::json question = nlohmann::json::parse(line);
    std::vector<int32_t> ids;
    for (const nlohmann::json& word : question["tokens"]) {
      ids.push_back(tokenizer.Lookup(word.get<std::string>()));
    }
    auto encoded = tokenizer.Encode(question["text"].get<std::string>());
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_EQ(*encoded, ids) << line;
  }
  EXPECT_EQ(questions, 60);
}

}  // namespace
}  // namespace sru::models
