#include "models/reader_input.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/text/code_point.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr EncodeOptions kWithSpans = {Tokenizer::kNoLimit, UnknownUse::kDefault, /*spans=*/true};

const Tokenizer& TheTokenizer() {
  static const auto* const tokenizer = [] {
    auto vocabulary = Vocabulary::Parse("<PAD>\n<UNK>\nwho\nann\n?\n", 5, "v");
    EXPECT_TRUE(vocabulary.ok());
    return MakeUnicodeWordTokenizer(*std::move(vocabulary), /*oov_id=*/1, /*lowercase=*/true)
        .release();
  }();
  return *tokenizer;
}

EncodedText Tokenize(std::string_view text) {
  auto tokens = TheTokenizer().Encode(text, kWithSpans);
  EXPECT_TRUE(tokens.ok()) << tokens.status();
  return *std::move(tokens);
}

ReaderConfig AllFeatures() {
  ReaderConfig config;
  config.features = {ReaderFeature::kExact, ReaderFeature::kLower, ReaderFeature::kLemma,
                     ReaderFeature::kTf};
  return config;
}

TEST(ReaderInputTest, TokensHavePlacesAndIds) {
  const std::string text = "Who's Ann?";
  const EncodedText tokens = Tokenize(text);
  EXPECT_THAT(tokens.ids, ElementsAre(2, 1, 1, 3, 4));
  ASSERT_EQ(tokens.spans.size(), tokens.ids.size());
  EXPECT_EQ(tokens.spans[3].Of(text), "Ann");
  EXPECT_EQ(Tokenize(" \n").size(), 0u);
  const auto invalid = TheTokenizer().Encode("ann \xff", kWithSpans);
  EXPECT_EQ(invalid.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(invalid.status().message(), HasSubstr("4"));
}

TEST(ReaderInputTest, FillsEveryFeature) {
  const ReaderConfig config = AllFeatures();
  const std::string question = "Who WAS Ann?";
  const std::vector<std::string_view> question_lemmas = {"who", "be", "ann", "?"};
  const QuestionFeatures features(config, question, Tokenize(question), question_lemmas);
  const std::string passage = "ann is Ann was";
  std::vector<float> values(16, -1);
  features.Fill(passage, Tokenize(passage), {"ann", "be", "x", "be"}, values.data());
  EXPECT_THAT(values, ElementsAre(0, 1, 1, 0.5f,  // the lower-cased token, twice of four
                                  0, 0, 1, 0.25f, 1, 1, 0, 0.5f, 0, 1, 1, 0.25f));
}

TEST(ReaderInputTest, FillsTheColumnsOfTheModel) {
  ReaderConfig config;
  config.features = {ReaderFeature::kTf};
  const std::string text = "a b A";
  const QuestionFeatures one(config, "x", Tokenize("x"), {});
  std::vector<float> values(3, -1);
  one.Fill(text, Tokenize(text), {}, values.data());
  const auto third = static_cast<float>(1.0 / 3.0);
  const auto two_thirds = static_cast<float>(2.0 / 3.0);
  EXPECT_THAT(values, ElementsAre(two_thirds, third, two_thirds));
  config.features.clear();
  const QuestionFeatures none(config, "x", Tokenize("x"), {});
  none.Fill(text, Tokenize(text), {}, nullptr);
  none.Fill("", Tokenize(""), {}, nullptr);
}

// Lower case may take more or fewer bytes than the text; views must stay where they are.
TEST(ReaderInputTest, LowerCaseOfAnotherLengthIsCompared) {
  ReaderConfig config;
  config.features = {ReaderFeature::kExact, ReaderFeature::kLower, ReaderFeature::kTf};
  const std::string question = "\u0130stanbul \u023a\u023a\u023a x";  // i, and a letter of 3 bytes
  const std::string passage = "istanbul \u2c65\u2c65\u2c65 X \u0130STANBUL";
  std::vector<QuestionFeatures> moved;
  for (int i = 0; i < 3; ++i)
    moved.emplace_back(config, question, Tokenize(question), std::vector<std::string_view>());
  for (const QuestionFeatures& features : moved) {
    std::vector<float> values(12, -1);
    features.Fill(passage, Tokenize(passage), {}, values.data());
    EXPECT_THAT(values, ElementsAre(0, 1, 0.5f, 0, 1, 0.25f, 0, 1, 0.25f, 0, 1, 0.5f));
  }
}

// Against the definition, on text of few words.
TEST(ReaderInputTest, EqualsTheDefinition) {
  ReaderConfig config;
  config.features = {ReaderFeature::kExact, ReaderFeature::kLower, ReaderFeature::kTf};
  const std::vector<std::string> words = {"a", "A", "\u00e9", "\u00c9",
                                          "b", "?", "\u03a3", "\u03c3"};
  std::mt19937 random(5);
  const auto make = [&](int size) {
    std::string text;
    for (int i = 0; i < size; ++i) text += words[random() % words.size()] + " ";
    return text;
  };
  const auto tokens_of = [](const std::string& text, bool lower) {
    std::vector<std::string> tokens;
    for (const TextSpan& span : Tokenize(text).spans) {
      std::string token;
      if (lower) {
        AppendLowerCase(span.Of(text), &token);
      } else {
        token = span.Of(text);
      }
      tokens.push_back(token);
    }
    return tokens;
  };
  for (int round = 0; round < 100; ++round) {
    const std::string question = make(1 + static_cast<int>(random() % 4));
    const std::string passage = make(1 + static_cast<int>(random() % 20));
    const auto asked = tokens_of(question, false), asked_lower = tokens_of(question, true);
    const auto given = tokens_of(passage, false), given_lower = tokens_of(passage, true);
    std::vector<float> expected;
    for (size_t i = 0; i < given.size(); ++i) {
      const auto in = [](const std::vector<std::string>& list, const std::string& word) {
        return static_cast<float>(std::count(list.begin(), list.end(), word) > 0);
      };
      expected.push_back(in(asked, given[i]));
      expected.push_back(in(asked_lower, given_lower[i]));
      expected.push_back(static_cast<float>(
          static_cast<double>(std::count(given_lower.begin(), given_lower.end(), given_lower[i])) /
          static_cast<double>(given.size())));
    }
    std::vector<float> found(expected.size(), -1);
    const QuestionFeatures features(config, question, Tokenize(question), {});
    features.Fill(passage, Tokenize(passage), {}, found.data());
    EXPECT_EQ(found, expected) << question << "| " << passage;
  }
}

TEST(ReaderInputTest, ChecksTags) {
  ReaderConfig config;
  config.pos_size = 9;
  const std::vector<int32_t> good = {0, 8};
  const std::vector<int32_t> high = {0, 9};
  const std::vector<int32_t> low = {-1, 0};
  const auto message = [&](const TokenTags& tags) {
    const absl::Status status = CheckTags(config, tags, 2);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_TRUE(CheckTags(config, {good, {}, {}}, 2).ok());
  EXPECT_EQ(message({{}, {}, {}}), "pos_ids: expected 2, one per token of the passage, found 0");
  EXPECT_EQ(message({high, {}, {}}), "pos_ids[1]: expected an id from 0 to 8, found 9");
  EXPECT_EQ(message({low, {}, {}}), "pos_ids[0]: expected an id from 0 to 8, found -1");
  EXPECT_EQ(message({good, good, {}}),
            "ner_ids: expected none, since the model has no embedding of named entities, found 2");
  EXPECT_EQ(message({good, {}, {"a", "b"}}),
            "lemmas: expected none, since the model has no feature \"lemma\", found 2");
  config.ner_size = 3;
  config.features = {ReaderFeature::kLemma};
  EXPECT_THAT(message({good, good, {"a", "b"}}),
              StartsWith("ner_ids[1]: expected an id from 0 to 2"));
  const std::vector<int32_t> zeros = {0, 0};
  EXPECT_EQ(message({good, zeros, {"a"}}),
            "lemmas: expected 2, one per token of the passage, found 1");
  EXPECT_TRUE(CheckTags(config, {good, zeros, {"a", "b"}}, 2).ok());
}

TEST(ReaderInputTest, ChecksTheLemmasOfAQuestion) {
  ReaderConfig config;
  EXPECT_TRUE(CheckQuestionLemmas(config, {}, 3).ok());
  EXPECT_THAT(std::string(CheckQuestionLemmas(config, {"a"}, 3).message()),
              StartsWith("question_lemmas: expected none"));
  config.features = {ReaderFeature::kLemma};
  EXPECT_EQ(CheckQuestionLemmas(config, {"a"}, 3).message(),
            "question_lemmas: expected 3, one per token of the question, found 1");
  EXPECT_TRUE(CheckQuestionLemmas(config, {"a", "b", "c"}, 3).ok());
}

}  // namespace
}  // namespace sru::models
