#include "models/text/byte_trie.h"

#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Prefixes = std::vector<std::pair<size_t, int32_t>>;

Prefixes PrefixesOf(const ByteTrie& trie, std::string_view text) {
  Prefixes prefixes;
  trie.ForEachPrefix(text,
                     [&](size_t length, int32_t value) { prefixes.emplace_back(length, value); });
  return prefixes;
}

TEST(ByteTrieTest, FindsPrefixes) {
  const ByteTrie trie({{"abc", 0}, {"a", 1}, {"ab\xff", 2}, {"b", 3}});
  EXPECT_FALSE(trie.empty());
  EXPECT_THAT(PrefixesOf(trie, "abcd"), ElementsAre(Pair(1, 1), Pair(3, 0)));
  EXPECT_THAT(PrefixesOf(trie, "ab\xff"), ElementsAre(Pair(1, 1), Pair(3, 2)));
  EXPECT_THAT(PrefixesOf(trie, "c"), IsEmpty());
  EXPECT_THAT(PrefixesOf(trie, ""), IsEmpty());
  EXPECT_EQ(trie.LongestPrefix("abce"), 3u);
  EXPECT_EQ(trie.LongestPrefix("x"), 0u);
  EXPECT_TRUE(ByteTrie({}).empty());
  EXPECT_EQ(ByteTrie({}).LongestPrefix("x"), 0u);
}

TEST(ByteTrieTest, EqualsAMap) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text;
    for (size_t n = 1 + random() % 5; n > 0; --n)
      text += static_cast<char>("ab\x80\xff"[random() % 4]);
    return text;
  };
  for (int round = 0; round < 200; ++round) {
    std::map<std::string, int32_t> map;
    for (int i = 0; i < 40; ++i) map.emplace(word(), i);
    const ByteTrie trie({map.begin(), map.end()});
    for (int i = 0; i < 40; ++i) {
      const std::string text = word() + word();
      Prefixes expected;
      for (size_t length = 1; length <= text.size(); ++length) {
        const auto it = map.find(text.substr(0, length));
        if (it != map.end()) expected.emplace_back(length, it->second);
      }
      ASSERT_EQ(PrefixesOf(trie, text), expected);
    }
  }
}

}  // namespace
}  // namespace sru::models
