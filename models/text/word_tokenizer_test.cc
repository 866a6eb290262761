#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::unique_ptr<Tokenizer> Make(PreprocessingConfig config) {
  auto vocabulary = Vocabulary::Parse("<pad>\n<oov>\nhow\nHow\n?\n'll\n", 6, "vocab.txt");
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  return MakeWordTokenizer(config, *std::move(vocabulary), /*oov_id=*/1);
}

TEST(WordTokenizerTest, EncodesText) {
  const auto tokenizer = Make({TokenizerType::kSentenceClassification, false});
  EXPECT_THAT(*tokenizer->Encode("How, how'll?"), ElementsAre(3, 1, 2, 5, 4));
  EXPECT_THAT(*tokenizer->Encode("How, how'll?", 2), ElementsAre(3, 1));
  EXPECT_THAT(*tokenizer->Encode("How, how'll?", 0), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode(""), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode(" . "), IsEmpty());
  // The text <oov> is a word that the vocabulary has only for its own use, but finds.
  EXPECT_THAT(*Make({TokenizerType::kWhitespace, false})->Encode("<pad> <oov>"), ElementsAre(0, 1));
  EXPECT_THAT(*Make({TokenizerType::kLowercase, false})->Encode("HOW How? ?"),
              ElementsAre(2, 1, 4));
}

TEST(WordTokenizerTest, RefusesInvalidUtf8) {
  const auto tokenizer = Make({TokenizerType::kWhitespace, false});
  EXPECT_EQ(tokenizer->Encode("how \xff").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(WordTokenizerTest, LooksUpWordsAsTheyAre) {
  const auto tokenizer = Make({TokenizerType::kLowercase, false});
  EXPECT_EQ(tokenizer->Lookup("How"), 3);
  EXPECT_EQ(tokenizer->Lookup("HOW"), tokenizer->unknown_id());
  EXPECT_EQ(tokenizer->Lookup(""), tokenizer->unknown_id());
  EXPECT_EQ(tokenizer->Lookup("how ?"), tokenizer->unknown_id());
}

}  // namespace
}  // namespace sru::models
