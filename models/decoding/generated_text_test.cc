#include "models/decoding/generated_text.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/decoding/utf8_part.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;

// Token i is the text pieces[i]; a token after another one begins with `separator`.
class FakeDetokenizer : public Detokenizer {
 public:
  explicit FakeDetokenizer(std::vector<std::string> pieces, std::string separator = "")
      : pieces_(std::move(pieces)), separator_(std::move(separator)) {}

  void Append(int32_t id, Position* position, std::string* text) const override {
    if (!position->at_start) *text += separator_;
    *text += pieces_[id];
    position->at_start = false;
  }

 private:
  const std::vector<std::string> pieces_;
  const std::string separator_;
};

std::shared_ptr<const StopStrings> Stop(const std::vector<std::string>& strings) {
  return strings.empty() ? nullptr : std::make_shared<const StopStrings>(strings);
}

// What TakeText() gives after each token, and Finish() at the end.
std::vector<std::string> Pieces(const std::vector<std::string>& tokens,
                                const std::vector<std::string>& stop = {}) {
  const FakeDetokenizer detokenizer(tokens);
  GeneratedText text(&detokenizer, Stop(stop), DecodingMemo());
  std::vector<std::string> pieces;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const bool stopped = text.Append(static_cast<int32_t>(i), true);
    pieces.push_back(text.TakeText());
    if (stopped) break;
  }
  pieces.push_back(text.Finish());
  return pieces;
}

std::string Replaced(std::string_view text) {
  std::string replaced;
  while (!text.empty()) {
    const Utf8Part part = FirstUtf8Part(text);
    replaced +=
        part.kind == Utf8Part::kCharacter ? text.substr(0, part.bytes) : kReplacementCharacter;
    text.remove_prefix(part.bytes);
  }
  return replaced;
}

// The definition: the text ends before the string that ends first, of these the longest.
std::string CutPlainly(const std::string& text, const std::vector<std::string>& stop) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& string : stop) {
      if (string.size() <= end && text.compare(end - string.size(), string.size(), string) == 0) {
        longest = std::max(longest, string.size());
      }
    }
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(GeneratedTextTest, GivesWholeCharacters) {
  EXPECT_THAT(Pieces({"a", "\xC3", "\xA9", "b"}), ElementsAre("a", "", "é", "b", ""));
  EXPECT_THAT(Pieces({"\xF0", "\x9F", "\x98", "\x80"}), ElementsAre("", "", "", "😀", ""));
  EXPECT_THAT(Pieces({"\xE2\x82", "\xAC\xE2", "\x82\xAC"}), ElementsAre("", "€", "€", ""));
}

TEST(GeneratedTextTest, ReplacesWhatIsBrokenAndOnlyThere) {
  const std::string r(kReplacementCharacter);
  // As soon as it is known to be broken, not before.
  EXPECT_THAT(Pieces({"a\xE2", "\x82", "b"}), ElementsAre("a", "", r + "b", ""));
  EXPECT_THAT(Pieces({"\x80", "\xE2", "\xE2", "\x82\xAC"}), ElementsAre(r, "", r, "€", ""));
  // An incomplete one at the end only when the text has ended.
  EXPECT_THAT(Pieces({"a", "\xF0\x9F"}), ElementsAre("a", "", r));
}

TEST(GeneratedTextTest, HoldsBackWhatMayBecomeAStopString) {
  EXPECT_THAT(Pieces({"one ", "E", "N", "D", "!"}, {"END"}), ElementsAre("one ", "", "", "", ""));
  EXPECT_THAT(Pieces({"one E", "N", "d"}, {"END"}), ElementsAre("one ", "", "ENd", ""));
  EXPECT_THAT(Pieces({"one E", "N"}, {"END"}), ElementsAre("one ", "", "EN"));
  // Across the border of tokens, in the middle of them, and of what is multi-byte.
  EXPECT_THAT(Pieces({"xx€", "\xE2\x82", "\xACy", "z"}, {"€€y"}), ElementsAre("xx", "", "", ""));
  EXPECT_THAT(Pieces({"a\n", "\nb"}, {"\n\n"}), ElementsAre("a", "", ""));
}

TEST(GeneratedTextTest, TheStringThatEndsFirstEndsTheText) {
  EXPECT_THAT(Pieces({"xabcdx"}, {"abcd", "bc"}), ElementsAre("xa", ""));
  EXPECT_THAT(Pieces({"xa", "bcd"}, {"abcd", "bc"}), ElementsAre("x", "a", ""));
  EXPECT_THAT(Pieces({"xabcdx"}, {"bc", "abc"}), ElementsAre("x", ""));
}

TEST(GeneratedTextTest, WhatIsBrokenBeforeAStopStringIsReplaced) {
  const std::string r(kReplacementCharacter);
  EXPECT_THAT(Pieces({"a\xE2\x82", "E", "ND"}, {"END"}), ElementsAre("a", r, "", ""));
  EXPECT_THAT(Pieces({"a\xE2\x82"
                      "END"},
                     {"END"}),
              ElementsAre("a", r));
}

TEST(GeneratedTextTest, NoStringEndsATextThatIsTooShort) {
  const FakeDetokenizer detokenizer({"a", "b"});
  GeneratedText text(&detokenizer, Stop({"ab"}), DecodingMemo());
  EXPECT_FALSE(text.Append(0, false));
  EXPECT_FALSE(text.Append(1, false));
  EXPECT_EQ(text.TakeText(), "");  // "ab" itself stays possible to the next byte
  EXPECT_FALSE(text.Append(0, true));
  EXPECT_EQ(text.TakeText(), "ab");
  // It may begin in what was too short.
  EXPECT_TRUE(text.Append(1, true));
  EXPECT_EQ(text.TakeText() + text.Finish(), "");
}

// Any division into tokens gives the same text, which is that of the definition.
TEST(GeneratedTextTest, AgreesWithAPlainSearchOverTheWholeText) {
  std::mt19937 random(2);
  const std::vector<std::string> alphabet = {"a", "b", "é", "€", "😀"};
  const std::vector<std::string> broken = {"\xE2", "\x82", "\xF0\x9F", "\xFF", "\xC3"};
  int stopped = 0;
  for (int round = 0; round < 5000; ++round) {
    const size_t letters = 1 + random() % alphabet.size();
    const auto some = [&](size_t length, bool may_break) {
      std::string text;
      for (size_t i = 0; i < length; ++i) {
        text += may_break && random() % 5 == 0 ? broken[random() % broken.size()]
                                               : alphabet[random() % letters];
      }
      return text;
    };
    std::vector<std::string> stop(random() % 4);
    for (std::string& string : stop) string = some(1 + random() % 4, false);
    const std::string all = some(random() % 24, round % 2 == 1);
    const std::string expected = CutPlainly(all, stop);
    stopped += expected == all ? 0 : 1;

    std::vector<std::string> tokens;
    for (size_t at = 0; at < all.size();) {
      const size_t length = round % 3 == 0 ? 1 : 1 + random() % 5;
      tokens.push_back(all.substr(at, length));
      at += length;
    }
    std::string found;
    for (const std::string& piece : Pieces(tokens, stop)) {
      ASSERT_EQ(FindInvalidUtf8(piece), piece.size()) << "a piece is valid by itself";
      found += piece;
    }
    ASSERT_EQ(found, Replaced(expected)) << all;
  }
  EXPECT_GT(stopped, 1000);
}

// Stopping after any token and going on from the memo changes no byte, whatever is held back then.
TEST(GeneratedTextTest, GoesOnFromAMemo) {
  const std::vector<std::string> tokens = {"x\xE2", "\x82", "\xAC E", "N", "E", "ND", " more"};
  const FakeDetokenizer detokenizer(tokens, "_");
  const auto stop = Stop({"_N_E_N_D", "E_ND"});
  const auto run = [&](size_t cut) {
    GeneratedText text(&detokenizer, stop, DecodingMemo());
    std::string all;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i == cut) {
        all += text.TakeText();
        DecodingMemo memo;
        text.WriteTo(&memo);
        text = GeneratedText(&detokenizer, stop, memo);
      }
      if (text.Append(static_cast<int32_t>(i), true)) break;
      if (i % 2 == 0) all += text.TakeText();
    }
    return all + text.TakeText() + text.Finish();
  };
  const std::string whole = run(tokens.size());
  EXPECT_THAT(whole, ::testing::EndsWith("_N_"));
  for (size_t cut = 0; cut < tokens.size(); ++cut) EXPECT_EQ(run(cut), whole) << cut;
}

TEST(GeneratedTextTest, ThePromptIsPartOfTheTextIfItIsWantedButOfNoStopString) {
  const FakeDetokenizer detokenizer({"one", "two", "END"}, " ");
  for (const bool echo : {false, true}) {
    GeneratedText text(&detokenizer, Stop({"END", "two END"}), DecodingMemo());
    text.AppendPrompt({2, 1}, echo);
    EXPECT_EQ(text.TakeText(), echo ? "END two" : "");
    EXPECT_FALSE(text.Append(0, true));
    EXPECT_EQ(text.TakeText(), " one");
    EXPECT_TRUE(text.Append(2, true));
    EXPECT_EQ(text.TakeText() + text.Finish(), " ");
  }
}

TEST(GeneratedTextTest, APromptCompletesNoPendingCharacter) {
  const FakeDetokenizer detokenizer({"\xE2\x82", "\xAC"});
  DecodingMemo memo;
  memo.pending_text = "a\xE2\x82";
  GeneratedText text(&detokenizer, nullptr, memo);
  text.AppendPrompt({1}, false);
  EXPECT_EQ(text.TakeText(), "a" + std::string(kReplacementCharacter));
}

TEST(GeneratedTextTest, ACopyGoesOnByItself) {
  const FakeDetokenizer detokenizer({"E", "N", "D", "x"});
  GeneratedText one(&detokenizer, Stop({"END"}), DecodingMemo());
  EXPECT_FALSE(one.Append(0, true));
  EXPECT_FALSE(one.Append(1, true));
  GeneratedText other = one;
  EXPECT_TRUE(one.Append(2, true));
  EXPECT_FALSE(other.Append(3, true));
  EXPECT_EQ(one.TakeText(), "");
  EXPECT_EQ(other.TakeText(), "ENx");
}

TEST(GeneratedTextTest, WithoutADetokenizerThereIsNoText) {
  GeneratedText text(nullptr, Stop({"a"}), DecodingMemo());
  text.AppendPrompt({1, 2}, true);
  EXPECT_FALSE(text.Append(7, true));
  EXPECT_EQ(text.TakeText() + text.Finish(), "");
}

// A text that is nothing but the begin of a stop string, and one that is never a character: neither
// makes a token cost more than what is held back.
TEST(GeneratedTextTest, TakesLinearTime) {
  const FakeDetokenizer detokenizer({"a", "\xF0", "\x9F"});
  const std::string most(kMaxStopStringBytes - 1, 'a');
  GeneratedText text(&detokenizer, Stop({most + "b"}), DecodingMemo());
  size_t bytes = 0;
  for (int i = 0; i < 2'000'000; ++i) {
    ASSERT_FALSE(text.Append(0, true));
    bytes += text.TakeText().size();
  }
  EXPECT_EQ(bytes, 2'000'000 - most.size());
  EXPECT_EQ(text.pending().size(), most.size());
  bytes = text.Finish().size();
  for (int i = 0; i < 1'000'000; ++i) {
    ASSERT_FALSE(text.Append(1 + i % 2, true));
    bytes += text.TakeText().size();
  }
  EXPECT_EQ(bytes + text.Finish().size(), most.size() + 3 * 500'000);
}

}  // namespace
}  // namespace sru::models
