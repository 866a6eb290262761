#include "models/text/word_index.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace sru::models {
namespace {

TEST(WordIndexTest, NumbersWordsInTheOrderInWhichTheyComeFirst) {
  WordIndex index(3);
  EXPECT_EQ(index.Find("b"), WordIndex::kNotFound);
  EXPECT_EQ(index.Add("b"), 0);
  EXPECT_EQ(index.Add("a"), 1);
  EXPECT_EQ(index.Add("b"), 0);
  EXPECT_EQ(index.Add(""), 2);
  EXPECT_EQ(index.size(), 3u);
  EXPECT_EQ(index.Find("a"), 1);
  EXPECT_TRUE(index.contains(""));
  EXPECT_FALSE(index.contains("ab"));
}

TEST(WordIndexTest, WithoutWordsFindsNone) {
  EXPECT_FALSE(WordIndex().contains(""));
  EXPECT_FALSE(WordIndex(0).contains("a"));
  WordIndex one(1);
  EXPECT_EQ(one.Add("a"), 0);
  EXPECT_FALSE(one.contains("b"));
}

TEST(WordIndexTest, AgreesWithAMap) {
  std::mt19937 random(1);
  std::vector<std::string> words(5000);
  for (std::string& word : words) {
    word.assign(random() % 4, static_cast<char>('a' + random() % 26));
    word += static_cast<char>(random() % 256);
  }
  WordIndex index(words.size());
  std::map<std::string, int> expected;
  for (const std::string& word : words) {
    const int next = static_cast<int>(expected.size());
    EXPECT_EQ(index.Add(word), expected.try_emplace(word, next).first->second);
  }
  EXPECT_EQ(index.size(), expected.size());
  for (const auto& [word, number] : expected) {
    EXPECT_EQ(index.Find(word), number);
    EXPECT_EQ(index.contains(word + "-"), expected.count(word + "-") > 0);
  }
}

}  // namespace
}  // namespace sru::models
