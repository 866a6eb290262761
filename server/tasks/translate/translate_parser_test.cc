#include "server/tasks/translate/translate_parser.h"

#include <limits>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/config.h"
#include "models/tokenizer_loader.h"
#include "tests/testing/checked.h"
#include "tests/testing/translator_files.h"

namespace sru::server::tasks {
namespace {

using ::sru::testing::Checked;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TranslateParserTest : public ::testing::Test {
 protected:
  TranslateParserTest() {
    config_.search.beam_size = 5;
    config_.search.length_penalty = models::LengthPenalty::kPower;
    config_.search.alpha = 0.7;
    config_.search.max_length = 100;
    config_.max_positions = 500;
    limits_.max_new_tokens = 300;
  }

  models::SearchOptions Parse() {
    auto search = Checked(ParseSearch(request_, config_, limits_));
    return search.ok() ? *search : models::SearchOptions();
  }
  std::string Error() {
    const auto search = ParseSearch(request_, config_, limits_);
    EXPECT_EQ(search.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(search.status().message());
  }

  v1::TranslateRequest request_;
  models::TranslatorConfig config_;
  calls::RequestLimits limits_;
};

TEST_F(TranslateParserTest, WhatIsLeftOpenIsTheModels) {
  const models::SearchOptions search = Parse();
  EXPECT_EQ(search.beam_size, 5);
  EXPECT_EQ(search.num_hypotheses, 1);
  EXPECT_EQ(search.length_penalty, models::LengthPenalty::kPower);
  EXPECT_EQ(search.alpha, 0.7);
  EXPECT_EQ(search.max_length, 100);
  EXPECT_EQ(search.word_penalty, 0);
  EXPECT_EQ(search.max_length_factor, 0);
  config_.search.word_penalty = 0.5;
  config_.search.max_length_factor = 2;
  EXPECT_EQ(Parse().word_penalty, 0.5);
  EXPECT_EQ(Parse().max_length_factor, 2);
  limits_.max_new_tokens = 50;
  EXPECT_EQ(Parse().max_length, 50);
}

TEST_F(TranslateParserTest, WhatIsAskedForGoesFirst) {
  request_.set_beam_size(64);
  request_.set_num_hypotheses(64);
  request_.mutable_length_penalty()->set_form(v1::LengthPenalty::FORM_GNMT);
  request_.mutable_length_penalty()->set_alpha(0);
  request_.set_max_new_tokens(300);
  config_.search.word_penalty = 0.5;
  config_.search.max_length_factor = 2;
  request_.set_word_penalty(0);
  request_.set_max_length_factor(1.5f);
  const models::SearchOptions search = Parse();
  EXPECT_EQ(search.beam_size, 64);
  EXPECT_EQ(search.num_hypotheses, 64);
  EXPECT_EQ(search.length_penalty, models::LengthPenalty::kGnmt);
  EXPECT_EQ(search.alpha, 0);
  EXPECT_EQ(search.max_length, 300);
  EXPECT_EQ(search.word_penalty, 0);
  EXPECT_EQ(search.max_length_factor, 1.5);
  request_.mutable_length_penalty()->set_form(v1::LengthPenalty::FORM_NONE);
  EXPECT_EQ(Parse().length_penalty, models::LengthPenalty::kNone);
}

TEST_F(TranslateParserTest, GreedySearchHasOneHypothesisAndNoPenalty) {
  request_.set_beam_size(1);
  request_.set_num_hypotheses(3);
  const models::SearchOptions search = Parse();
  EXPECT_EQ(search.num_hypotheses, 1);
  EXPECT_EQ(search.length_penalty, models::LengthPenalty::kNone);
  // Marian's has it.
  config_.search.narrows = true;
  EXPECT_EQ(Parse().num_hypotheses, 1);
  EXPECT_EQ(Parse().length_penalty, models::LengthPenalty::kPower);
}

TEST_F(TranslateParserTest, WrongFieldsAreNamed) {
  for (const int beam : {-1, 65, 1000}) {
    request_.set_beam_size(beam);
    EXPECT_EQ(Error(),
              absl::StrCat("beam_size: ", beam,
                           " is out of range, expected 1 to 64, or 0 for the model's own"));
  }
  request_.set_beam_size(4);
  for (const int count : {-1, 5, 1000}) {
    request_.set_num_hypotheses(count);
    EXPECT_EQ(Error(), absl::StrCat("num_hypotheses: ", count,
                                    " is out of range, expected 1 to 4 (beam_size), or 0 for 1"));
  }
  request_.set_beam_size(1);
  request_.set_num_hypotheses(-1);
  EXPECT_THAT(Error(), HasSubstr("num_hypotheses: -1 is out of range"));
  request_.Clear();
  for (const float alpha : {-0.1f, 10.5f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    request_.mutable_length_penalty()->set_alpha(alpha);
    EXPECT_EQ(Error(),
              absl::StrCat("length_penalty.alpha: ", alpha, " is out of range, expected 0 to 10"));
  }
  request_.Clear();
  request_.mutable_length_penalty()->set_form(static_cast<v1::LengthPenalty::Form>(9));
  EXPECT_THAT(Error(), HasSubstr("length_penalty.form: 9 is unknown"));
  request_.Clear();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float penalty : {-100.5f, 101.0f, kInfinity, std::nanf("")}) {
    request_.set_word_penalty(penalty);
    EXPECT_EQ(Error(),
              absl::StrCat("word_penalty: ", penalty, " is out of range, expected -100 to 100"));
  }
  request_.Clear();
  for (const float factor : {-1.0f, 100.5f, kInfinity, std::nanf("")}) {
    request_.set_max_length_factor(factor);
    EXPECT_EQ(Error(), absl::StrCat("max_length_factor: ", factor,
                                    " is out of range, expected 0 to 100, 0 for the model's own"));
  }
  request_.Clear();
  request_.set_max_new_tokens(301);
  EXPECT_EQ(
      Error(),
      "max_new_tokens: 301 is out of range, expected 1 to 300 (--max_new_tokens), or 0 for the "
      "model's own");
  limits_.max_new_tokens = 4096;
  request_.set_max_new_tokens(501);
  EXPECT_THAT(Error(), HasSubstr("expected 1 to 500 (max_positions of the model)"));
  request_.set_max_new_tokens(-1);
  EXPECT_THAT(Error(), HasSubstr("max_new_tokens: -1 is out of range"));
}

class TranslatePrefixTest : public ::testing::Test {
 protected:
  TranslatePrefixTest() {
    models::WriteSmallTranslator(directory_, "m");
    const std::string path = directory_.path("m");
    auto config =
        models::ParseModelConfig(models::SmallTranslatorConfig().dump(), "config.json").value();
    tokenizer_ = models::LoadTokenizer(config, path).value();
  }

  std::string Error(size_t sequences, const models::Tokenizer* tokenizer, int max_length = 20) {
    const auto prefixes = ParsePrefixes(request_, sequences, tokenizer, max_length);
    EXPECT_EQ(prefixes.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(prefixes.status().message());
  }

  models::TempDirectory directory_;
  v1::TranslateRequest request_;
  std::unique_ptr<const models::Tokenizer> tokenizer_;
};

TEST_F(TranslatePrefixTest, OneForEachSequenceOrNone) {
  auto prefixes = Checked(ParsePrefixes(request_, 2, tokenizer_.get(), 20));
  EXPECT_THAT(*prefixes, ElementsAre(IsEmpty(), IsEmpty()));
  request_.add_target_prefixes("");
  request_.add_target_prefixes("c c");
  prefixes = ParsePrefixes(request_, 2, tokenizer_.get(), 20);
  ASSERT_TRUE(prefixes.ok());
  EXPECT_THAT(*prefixes, ElementsAre(IsEmpty(), ::testing::Not(IsEmpty())));
  EXPECT_EQ(Error(3, tokenizer_.get()),
            "target_prefixes: expected none or 3, one per sequence, found 2");
  EXPECT_EQ(Error(1, tokenizer_.get()),
            "target_prefixes: expected none or 1, one per sequence, found 2");
}

TEST_F(TranslatePrefixTest, WrongOnesAreNamed) {
  request_.add_target_prefixes("");
  request_.add_target_prefixes("c c c c");
  EXPECT_THAT(Error(2, tokenizer_.get(), 3),
              HasSubstr("target_prefixes[1]: at least 3 tokens are too many, expected fewer than 3 "
                        "(max_new_tokens)"));
  EXPECT_EQ(Error(2, nullptr), "target_prefixes[1]: the model has no subwords, expected no prefix");
  request_.set_target_prefixes(1, "c \xff");
  EXPECT_THAT(Error(2, tokenizer_.get()), HasSubstr("target_prefixes[1]: "));
  request_.clear_target_prefixes();
  request_.add_target_prefixes("");
  EXPECT_THAT(*ParsePrefixes(request_, 1, nullptr, 20), SizeIs(1));
}

}  // namespace
}  // namespace sru::server::tasks
