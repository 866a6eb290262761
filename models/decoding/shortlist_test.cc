#include "models/decoding/shortlist.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/marian_files.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Source words 0 (</s>) to 4; the last one has no list.
const std::vector<std::vector<uint32_t>> kLists = {{3}, {}, {7, 20}, {20, 31}, {}};

Shortlist ParseOrDie(const std::string& bytes, const ShortlistVocabularies& vocabularies) {
  auto list = Shortlist::Parse(bytes, vocabularies, "lex.bin");
  EXPECT_TRUE(list.ok()) << list.status();
  return *std::move(list);
}

TEST(ShortlistTest, IsTheFirstWordsTheListsAndTheNextWords) {
  const Shortlist list =
      ParseOrDie(testing::ShortlistFile(2, 2, kLists), {5, 40, /*shared=*/false, 0});
  // 0 and 1 are the first words, 3 is of </s>; 2, 4, 5, 6 complete 8.
  EXPECT_THAT(list.For({2}), ElementsAre(0, 1, 2, 3, 4, 5, 7, 20));
  EXPECT_THAT(list.For({2, 0}), ElementsAre(0, 1, 2, 3, 4, 5, 7, 20)) << "with </s>";
  EXPECT_THAT(list.For({3, 2, 3}), ElementsAre(0, 1, 2, 3, 4, 7, 20, 31));
  EXPECT_THAT(list.For({}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(list.For({4}), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7)) << "a word without a list";
}

TEST(ShortlistTest, HasTheSourcePiecesOfASharedVocabulary) {
  const Shortlist list =
      ParseOrDie(testing::ShortlistFile(2, 2, {{3}, {}, {7, 20}}), {40, 40, /*shared=*/true, 0});
  EXPECT_THAT(list.For({2, 39}), ElementsAre(0, 1, 2, 3, 4, 7, 20, 39));
}

TEST(ShortlistTest, EndsWithTheVocabulary) {
  const Shortlist list = ParseOrDie(testing::ShortlistFile(2, 2, {{3}}), {5, 5, false, 0});
  EXPECT_THAT(list.For({1}), ElementsAre(0, 1, 2, 3, 4));
  const Shortlist many = ParseOrDie(testing::ShortlistFile(50, 2, {{3}}), {5, 5, false, 0});
  EXPECT_THAT(many.For({1}), ElementsAre(0, 1, 2, 3, 4));
}

TEST(ShortlistTest, RefusesDamagedFiles) {
  const ShortlistVocabularies vocabularies{5, 40, false, 0};
  const std::string good = testing::ShortlistFile(2, 2, kLists);
  const auto error = [&](const std::string& bytes, const ShortlistVocabularies& sizes) {
    return std::string(Shortlist::Parse(bytes, sizes, "lex.bin").status().message());
  };
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(error(good.substr(0, size), vocabularies), HasSubstr("lex.bin: ")) << size;
  }
  // Every byte but the words that the checksum leaves out counts.
  for (size_t i = 0; i < good.size() - 4; ++i) {
    std::string bad = good;
    bad[i] ^= 1;
    EXPECT_NE(error(bad, vocabularies), "") << i;
  }
  EXPECT_THAT(error(good, {3, 40, false, 0}), HasSubstr("expected at most 4 offsets"));
  EXPECT_THAT(error(good, {5, 31, false, 0}), HasSubstr("word 4: expected an id below 31"));
  std::string huge = good;
  huge[39] = '\x20';  // 2^61 offsets, whose bytes overflow to nothing
  EXPECT_THAT(error(huge, vocabularies), HasSubstr("damaged or truncated"));
}

}  // namespace
}  // namespace sru::models
