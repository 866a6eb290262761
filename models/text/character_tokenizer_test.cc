#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// 0 <unk>, 1 a, 2 space, 3 e with acute, 4 newline, 5 carriage return, 6 U+1F600, 7 a backslash, 8
// n
std::unique_ptr<Tokenizer> Make(int32_t oov_id) {
  auto vocabulary =
      Vocabulary::Parse("<unk>\na\n \n\u00e9\n\\n\n\\r\n\U0001f600\n\\\nn\n", 9, "vocab.txt");
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  return MakeCharacterTokenizer(*std::move(vocabulary), oov_id);
}

TEST(CharacterTokenizerTest, OneTokenPerCodePoint) {
  const auto tokenizer = Make(Tokenizer::kNotFound);
  EXPECT_THAT(*tokenizer->Encode(""), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode("a \u00e9\U0001f600a"), ElementsAre(1, 2, 3, 6, 1));
  EXPECT_THAT(*tokenizer->Encode("\r\n\\n"), ElementsAre(5, 4, 7, 8));
  EXPECT_THAT(*tokenizer->Encode("aaaa", 3), ElementsAre(1, 1, 1));
  EXPECT_THAT(*tokenizer->Encode("aaaa", 0), IsEmpty());
}

TEST(CharacterTokenizerTest, UnknownCharacters) {
  EXPECT_THAT(*Make(0)->Encode("ax\u4e2d"), ElementsAre(1, 0, 0));
  const absl::Status status = Make(Tokenizer::kNotFound)->Encode("a\u00e9\u4e2d").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("character U+4E2D at byte 3"));
  EXPECT_THAT(*Make(Tokenizer::kNotFound)->Encode("a\u4e2d", 1), ElementsAre(1));
}

TEST(CharacterTokenizerTest, RefusesInvalidUtf8) {
  const absl::Status status = Make(0)->Encode("aa\xff").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("not valid UTF-8 at byte 2"));
}

TEST(CharacterTokenizerTest, GivesTextBack) {
  const auto tokenizer = Make(Tokenizer::kNotFound);
  const std::string text = "a\n\u00e9 \\n\r\U0001f600";
  EXPECT_EQ(tokenizer->detokenizer()->Decode(*tokenizer->Encode(text)), text);
  EXPECT_EQ(tokenizer->detokenizer()->Decode({0, 1}), "<unk>a");
  EXPECT_EQ(tokenizer->TokenName(4), "\\n");
  EXPECT_EQ(tokenizer->TokenName(3), "\u00e9");
  EXPECT_EQ(tokenizer->Lookup("<unk>"), 0);
  EXPECT_EQ(tokenizer->Lookup("\n"), 4);
  EXPECT_EQ(tokenizer->Lookup("aa"), Tokenizer::kNotFound);
}

}  // namespace
}  // namespace sru::models
