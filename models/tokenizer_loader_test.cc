#include "models/tokenizer_loader.h"

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/checked.h"
#include "tests/testing/sentencepiece_file.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::sru::testing::Checked;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig Config(TokenizerType type, int size, int oov_id = Tokenizer::kNotFound) {
  ModelConfig config;
  config.has_embedding = true;
  config.embedding = {size, oov_id};
  config.tokenizer.type = type;
  return config;
}

std::vector<int32_t> Encode(const ModelConfig& config, const TempDirectory& directory,
                            const std::string& text) {
  auto tokenizer = Checked(LoadTokenizer(config, directory.path()));
  if (!tokenizer.ok()) return {};
  EXPECT_EQ((*tokenizer)->size(), config.embedding.vocabulary_size);
  auto ids = Checked((*tokenizer)->Encode(text));
  return ids.value_or(std::vector<int32_t>());
}

TEST(TokenizerLoaderTest, WhatReplacesUnknownTokensMustBeThere) {
  TempDirectory directory;
  directory.Write("vocab.txt", "a\nb\n");
  ModelConfig config = Config(TokenizerType::kCharacters, 2);
  config.tokenizer.unknown = UnknownUse::kSkip;
  EXPECT_TRUE(LoadTokenizer(config, directory.path()).ok());
  config.tokenizer.unknown = UnknownUse::kReplace;
  const absl::Status status = LoadTokenizer(config, directory.path()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("config.json: preprocessing.unknown: expected \"refuse\" or \"skip\""));
  directory.Write("vocab.txt", "a\n?\n");
  EXPECT_TRUE(LoadTokenizer(config, directory.path()).ok());
}

TEST(TokenizerLoaderTest, LoadsEveryType) {
  TempDirectory directory;
  directory.Write("vocab.txt", "<unk>\n</s>\na\nA\n?\n");
  directory.Write("spm.model", sru::testing::SmallSentencePieceFile().bytes());
  EXPECT_THAT(Encode(Config(TokenizerType::kWhitespace, 5, 0), directory, "A a?"),
              ElementsAre(3, 0));
  EXPECT_THAT(Encode(Config(TokenizerType::kLowercase, 5, 0), directory, "A ?"), ElementsAre(2, 4));
  EXPECT_THAT(Encode(Config(TokenizerType::kSentenceClassification, 5, 0), directory, "A a?"),
              ElementsAre(3, 2, 4));
  ModelConfig bytes = Config(TokenizerType::kBytes, 2);
  bytes.tokenizer.byte_vocabulary = {'A', 'a'};
  EXPECT_THAT(Encode(bytes, directory, "aA"), ElementsAre(1, 0));
  EXPECT_THAT(Encode(Config(TokenizerType::kCharacters, 5, 0), directory, "aA!"),
              ElementsAre(2, 3, 0));
  EXPECT_THAT(Encode(Config(TokenizerType::kLineWords, 5), directory, "a\n? b"),
              ElementsAre(2, 1, 4, 0));
  ModelConfig unicode = Config(TokenizerType::kUnicodeWords, 5, 0);
  unicode.tokenizer.lowercase = true;
  EXPECT_THAT(Encode(unicode, directory, "A?"), ElementsAre(2, 4));
  EXPECT_THAT(Encode(Config(TokenizerType::kSentencePiece, 10), directory, "abc"),
              ElementsAre(6, 9));
}

TEST(TokenizerLoaderTest, WithoutAnUnknownCharacter) {
  TempDirectory directory;
  directory.Write("vocab.txt", "a\nb\n");
  auto tokenizer = Checked(LoadTokenizer(Config(TokenizerType::kCharacters, 2), directory.path()));
  EXPECT_FALSE((*tokenizer)->Encode("abc").ok());
}

TEST(TokenizerLoaderTest, NamesTheFileThatIsWrong) {
  TempDirectory directory;
  const struct {
    ModelConfig config;
    std::string file;
    std::string contents;  // "" = there is none
    absl::StatusCode code;
    std::string message;
  } kCases[] = {
      {Config(TokenizerType::kWhitespace, 2, 0), "vocab.txt", "", absl::StatusCode::kNotFound, ""},
      {Config(TokenizerType::kWhitespace, 2, 0), "vocab.txt", "a\n",
       absl::StatusCode::kInvalidArgument, "expected 2 words"},
      {Config(TokenizerType::kLineWords, 2), "vocab.txt", "a\nb\n",
       absl::StatusCode::kInvalidArgument, "the word </s>"},
      {Config(TokenizerType::kSentencePiece, 10), "spm.model", "", absl::StatusCode::kNotFound,
       "cannot be opened"},
      {Config(TokenizerType::kSentencePiece, 10), "spm.model", "garbage",
       absl::StatusCode::kInvalidArgument, "not a SentencePiece model"},
      {Config(TokenizerType::kSentencePiece, 9), "spm.model",
       sru::testing::SmallSentencePieceFile().bytes(), absl::StatusCode::kInvalidArgument,
       "expected 9 pieces (embedding.vocabulary_size in config.json), found 10"},
  };
  for (const auto& c : kCases) {
    if (!c.contents.empty()) directory.Write(c.file, c.contents);
    const absl::Status status = LoadTokenizer(c.config, directory.path()).status();
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(c.file), HasSubstr(c.message)));
  }
}

// The bundled model's vocabulary and the tokens that an independent implementation makes.
TEST(TokenizerLoaderTest, EncodesTheBundledQuestions) {
  auto config = Checked(ReadModelConfig("models/pretrained/trec/1/config.json"));
  auto tokenizer = Checked(LoadTokenizer(*config, "models/pretrained/trec/1"));
  std::ifstream file("tests/data/trec_questions.jsonl");
  int questions = 0;
  for (std::string line; std::getline(file, line); ++questions) {
    const nlohmann::json question = nlohmann::json::parse(line);
    std::vector<int32_t> ids;
    for (const nlohmann::json& word : question["tokens"]) {
      ids.push_back((*tokenizer)->Lookup(word.get<std::string>()));
    }
    auto encoded = Checked((*tokenizer)->Encode(question["text"].get<std::string>()));
    EXPECT_EQ(*encoded, ids) << line;
  }
  EXPECT_EQ(questions, 60);
}

}  // namespace
}  // namespace sru::models
