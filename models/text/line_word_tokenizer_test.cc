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

std::unique_ptr<Tokenizer> Make(const std::string& words, int size) {
  auto vocabulary = Vocabulary::Parse(words, size, "vocab.txt");
  EXPECT_TRUE(vocabulary.ok()) << vocabulary.status();
  auto tokenizer = MakeLineWordTokenizer(*std::move(vocabulary), "vocab.txt");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status();
  return *std::move(tokenizer);
}

TEST(LineWordTokenizerTest, SplitsAtAsciiWhiteSpace) {
  const auto tokenizer = Make("the\n</s>\n<unk>\nw3\na\u00a0b\n", 5);
  EXPECT_THAT(*tokenizer->Encode(""), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode(" \t\r\f\v"), IsEmpty());
  EXPECT_THAT(*tokenizer->Encode("the w3  x The\n\nw3"), ElementsAre(0, 3, 2, 2, 1, 1, 3));
  EXPECT_THAT(*tokenizer->Encode("\nthe\r\n\v\fw3\t"), ElementsAre(1, 0, 1, 3));
  EXPECT_THAT(*tokenizer->Encode("a\u00a0b"), ElementsAre(4));  // no other white space splits
  EXPECT_THAT(*tokenizer->Encode("the </s>"), ElementsAre(0, 1));
  EXPECT_THAT(*tokenizer->Encode("the\nw3", 2), ElementsAre(0, 1));
}

TEST(LineWordTokenizerTest, WithoutAnUnknownWord) {
  const auto tokenizer = Make("the\n</s>\n", 2);
  const absl::Status status = tokenizer->Encode("the \n cat").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the word of 3 bytes at byte 6"));
  EXPECT_EQ(tokenizer->Lookup("cat"), Tokenizer::kNotFound);
  EXPECT_THAT(*tokenizer->Encode("the cat", 1), ElementsAre(0));
}

TEST(LineWordTokenizerTest, Refuses) {
  auto vocabulary = Vocabulary::Parse("the\n<unk>\n", 2, "vocab.txt");
  const absl::Status no_end = MakeLineWordTokenizer(*std::move(vocabulary), "vocab.txt").status();
  EXPECT_EQ(no_end.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(no_end.message()), HasSubstr("</s>"));
  const absl::Status status = Make("the\n</s>\n", 2)->Encode("the \xff").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not valid UTF-8 at byte 4"));
}

TEST(LineWordTokenizerTest, GivesLinesBack) {
  const auto tokenizer = Make("the\n</s>\n<unk>\nw3\n", 4);
  EXPECT_EQ(tokenizer->detokenizer()->Decode({0, 3, 1, 1, 3, 2}), "the w3\n\nw3 <unk>");
  // Piece by piece it is the same.
  Detokenizer::Position position;
  std::string text;
  for (const int32_t id : {0, 3, 1}) tokenizer->detokenizer()->Append(id, &position, &text);
  EXPECT_EQ(text, "the w3\n");
  Detokenizer::Position fork = position;
  tokenizer->detokenizer()->Append(3, &fork, &text);
  tokenizer->detokenizer()->Append(3, &fork, &text);
  EXPECT_EQ(text, "the w3\nw3 w3");
  EXPECT_TRUE(position.at_start);
}

}  // namespace
}  // namespace sru::models
