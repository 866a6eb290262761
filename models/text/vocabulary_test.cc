#include "models/text/vocabulary.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(VocabularyTest, LineNumberIsId) {
  for (const std::string contents : {"<pad>\n<oov>\nStraße\n", "<pad>\n<oov>\nStraße"}) {
    auto vocabulary = Vocabulary::Parse(contents, 3, "vocab.txt");
    ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
    EXPECT_EQ((*vocabulary)->size(), 3);
    EXPECT_EQ((*vocabulary)->Find("<pad>"), 0);
    EXPECT_EQ((*vocabulary)->Find("<oov>"), 1);
    EXPECT_EQ((*vocabulary)->Find("Straße"), 2);
    EXPECT_EQ((*vocabulary)->Find("straße"), Tokenizer::kNotFound);
    EXPECT_EQ((*vocabulary)->Find(""), Tokenizer::kNotFound);
    EXPECT_EQ((*vocabulary)->word(2), "Straße");
  }
}

// Characters that other programs take for line ends are part of a word.
TEST(VocabularyTest, OnlyNewlinesEndLines) {
  auto vocabulary = Vocabulary::Parse("a\u2028b\nc\u0085d\ne f\n", 3, "vocab.txt");
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  EXPECT_EQ((*vocabulary)->Find("c\u0085d"), 1);
  EXPECT_EQ((*vocabulary)->Find("e f"), 2);
}

TEST(VocabularyTest, NamesTheLine) {
  const struct {
    std::string contents;
    int size;
    std::string message;
  } kCases[] = {
      {"", 1, "expected 1 words (embedding.vocabulary_size in config.json), found 0"},
      {"a\nb\n", 3, "expected 3 words (embedding.vocabulary_size in config.json), found 2"},
      {"a\nb\nc\n", 2, "expected 2 words (embedding.vocabulary_size in config.json), found more"},
      {"a\n\nb\n", 3, "line 2 is empty"},
      {"a\nb\n\n", 3, "line 3 is empty"},
      {"\na\n", 2, "line 1 is empty"},
      {"a\nb\r\n", 2, "line 2 has a carriage return"},
      {"a\nb\na\n", 3, "line 3 repeats line 1"},
      {"a\nb\xff\n", 2, "line 2: not valid UTF-8 at byte 3"},
      {"a\nb\xc3", 2, "line 2: not valid UTF-8 at byte 3"},
      {"\xef\xbb\xbf"
       "a\n",
       1, "line 1 starts with a byte order mark"},
  };
  for (const auto& c : kCases) {
    const absl::Status status = Vocabulary::Parse(c.contents, c.size, "dir/vocab.txt").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << c.message;
    EXPECT_THAT(std::string(status.message()),
                AllOf(StartsWith("dir/vocab.txt: "), HasSubstr(c.message)));
  }
}

}  // namespace
}  // namespace sru::models
