#include "models/decoding/stop_strings.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace sru::models {
namespace {

// Where the first string begins and ends; {npos, npos} where none is.
using Found = std::pair<size_t, size_t>;
constexpr Found kNowhere = {std::string::npos, std::string::npos};

// The definition: of all occurrences the one that ends first, of these the longest.
Found SearchPlainly(const std::string& text, const std::vector<std::string>& strings) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& string : strings) {
      if (string.size() <= end && text.compare(end - string.size(), string.size(), string) == 0) {
        longest = std::max(longest, string.size());
      }
    }
    if (longest > 0) return {end - longest, end};
  }
  return kNowhere;
}

Found Search(const std::string& text, const std::vector<std::string>& strings) {
  const StopStrings stop(strings);
  StopStrings::State state = StopStrings::kStart;
  for (size_t i = 0; i < text.size(); ++i) {
    state = stop.Next(state, static_cast<unsigned char>(text[i]));
    if (stop.match(state) > 0) return {i + 1 - stop.match(state), i + 1};
  }
  return kNowhere;
}

TEST(StopStringsTest, FindsTheOneThatEndsFirst) {
  EXPECT_EQ(Search("xabcdx", {"abcd", "bc"}), Found(2, 4));
  EXPECT_EQ(Search("xabcx", {"bc", "abc", "c"}), Found(1, 4));  // all end there: the longest
  EXPECT_EQ(Search("aaab", {"aab"}), Found(1, 4));
  EXPECT_EQ(Search("abababc", {"ababc"}), Found(2, 7));
  EXPECT_EQ(Search("abc", {"abd", "x"}), kNowhere);
  EXPECT_EQ(Search("", {"a"}), kNowhere);
  EXPECT_EQ(Search("a", {"a", "a"}), Found(0, 1));
  EXPECT_EQ(Search(std::string("a\0b\xFF", 4), {std::string("\0b\xFF", 3)}), Found(1, 4));
}

TEST(StopStringsTest, AgreesWithAPlainSearch) {
  std::mt19937 random(1);
  const auto text_of = [&random](size_t length, int letters) {
    std::string text;
    while (text.size() < length) text.push_back(static_cast<char>('a' + random() % letters));
    return text;
  };
  int found = 0;
  for (int round = 0; round < 3000; ++round) {
    const int letters = 1 + static_cast<int>(random() % 3);
    std::vector<std::string> strings(1 + random() % 5);
    for (std::string& string : strings) string = text_of(1 + random() % 6, letters);
    const std::string text = text_of(random() % 40, letters);
    const Found expected = SearchPlainly(text, strings);
    ASSERT_EQ(Search(text, strings), expected) << text;
    found += expected == kNowhere ? 0 : 1;

    // The depth is the longest end of the text that a string begins with.
    const StopStrings stop(strings);
    StopStrings::State state = StopStrings::kStart;
    for (size_t end = 1; end <= text.size(); ++end) {
      state = stop.Next(state, static_cast<unsigned char>(text[end - 1]));
      size_t longest = 0;
      for (const std::string& string : strings) {
        for (size_t size = 1; size <= std::min(end, string.size()); ++size) {
          if (text.compare(end - size, size, string, 0, size) == 0)
            longest = std::max(longest, size);
        }
      }
      ASSERT_EQ(stop.depth(state), longest) << text << " at " << end;
    }
  }
  EXPECT_GT(found, 500);
  EXPECT_LT(found, 2900);
}

// Each step falls back along a chain of 1,023 nodes if the fallbacks are not paid for by what came
// before.
TEST(StopStringsTest, TakesLinearTime) {
  std::vector<std::string> strings;
  for (size_t i = 0; i < kMaxStopStrings; ++i) {
    strings.push_back(std::string(kMaxStopStringBytes - 1, 'a') + static_cast<char>('b' + i));
  }
  const StopStrings stop(strings);
  StopStrings::State state = StopStrings::kStart;
  for (int i = 0; i < 1'000'000; ++i) {
    state = stop.Next(state, 'a');
  }
  EXPECT_EQ(stop.depth(state), kMaxStopStringBytes - 1);
  EXPECT_EQ(stop.match(stop.Next(state, 'c')), kMaxStopStringBytes);
}

}  // namespace
}  // namespace sru::models
