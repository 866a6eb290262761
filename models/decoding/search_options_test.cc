#include "models/decoding/search_options.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::function<void(SearchOptions*)>& set) {
  SearchOptions options{5, 2, LengthPenalty::kGnmt, 0.6, 100};
  set(&options);
  const absl::Status status = ValidateSearch(options, 200, "--max_new_tokens");
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(SearchOptionsTest, PenaltiesAreThoseOfTheirEquations) {
  SearchOptions options;
  options.alpha = 0.6;
  options.length_penalty = LengthPenalty::kNone;
  EXPECT_EQ(LengthPenaltyOf(options, 7), 1);
  options.length_penalty = LengthPenalty::kPower;
  EXPECT_DOUBLE_EQ(LengthPenaltyOf(options, 7), std::pow(7, 0.6));
  options.length_penalty = LengthPenalty::kGnmt;
  EXPECT_DOUBLE_EQ(LengthPenaltyOf(options, 6), std::pow(2, 0.6));
  options.alpha = 0;
  EXPECT_EQ(LengthPenaltyOf(options, 6), 1);
}

TEST(SearchOptionsTest, AScoreHasTheWordPenaltyOfEachToken) {
  SearchOptions options;
  options.length_penalty = LengthPenalty::kPower;
  options.alpha = 1;
  EXPECT_EQ(ScoreOf(options, -3, 4), -0.75);
  options.word_penalty = 0.5;
  EXPECT_EQ(ScoreOf(options, -3, 4), -1.25);
}

TEST(SearchOptionsTest, TheLengthIsBoundByTheSource) {
  SearchOptions options;
  options.max_length = 20;
  EXPECT_EQ(MaxLengthOf(options, 3), 20);
  options.max_length_factor = 2;
  EXPECT_EQ(MaxLengthOf(options, 3), 6);
  EXPECT_EQ(MaxLengthOf(options, 10), 20);
  EXPECT_EQ(MaxLengthOf(options, 11), 20);
  options.max_length_factor = 1.5;
  EXPECT_EQ(MaxLengthOf(options, 3), 5);
  // 1.2 as a float times ten is twelve, and not a little more.
  options.max_length_factor = 1.2f;
  EXPECT_EQ(MaxLengthOf(options, 10), 12);
}

TEST(SearchOptionsTest, TakesTheEndsOfEveryRange) {
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { *o = {64, 64, LengthPenalty::kPower, 10, 200}; }), "");
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { *o = {1, 1, LengthPenalty::kNone, 0, 1}; }), "");
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { o->word_penalty = o->max_length_factor = 100; }), "");
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { o->word_penalty = -100; }), "");
}

TEST(SearchOptionsTest, NamesTheFieldThatIsOutOfRange) {
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { o->beam_size = 0; }),
            "beam_size: 0 is out of range, expected 1 to 64, or 0 for the model's own");
  EXPECT_THAT(ErrorOf([](SearchOptions* o) { o->beam_size = 65; }), HasSubstr("beam_size: "));
  EXPECT_THAT(ErrorOf([](SearchOptions* o) { o->beam_size = -1; }), HasSubstr("beam_size: -1 is"));
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { o->num_hypotheses = 6; }),
            "num_hypotheses: 6 is out of range, expected 1 to 5 (beam_size), or 0 for 1");
  EXPECT_THAT(ErrorOf([](SearchOptions* o) { o->num_hypotheses = 0; }), HasSubstr(": 0 is out"));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double alpha : {-0.1, 10.1, kInfinity, -kInfinity, std::nan("")}) {
    EXPECT_THAT(
        ErrorOf([alpha](SearchOptions* o) { o->alpha = alpha; }),
        AllOf(StartsWith("length_penalty.alpha: "), EndsWith(" is out of range, expected 0 to 10")))
        << alpha;
    EXPECT_THAT(
        ErrorOf([alpha](SearchOptions* o) { o->word_penalty = 2000 * alpha; }),
        AllOf(StartsWith("word_penalty: "), EndsWith(" is out of range, expected -100 to 100")))
        << alpha;
    EXPECT_THAT(ErrorOf([alpha](SearchOptions* o) { o->max_length_factor = 20 * alpha; }),
                AllOf(HasSubstr("max_length_factor: "), HasSubstr(" expected 0 to 100, 0 for")))
        << alpha;
  }
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { o->max_length = 201; }),
            "max_new_tokens: 201 is out of range, expected 1 to 200 (--max_new_tokens), or 0 for "
            "the model's own");
  EXPECT_THAT(ErrorOf([](SearchOptions* o) { o->max_length = 0; }), HasSubstr(": 0 is out"));
}

}  // namespace
}  // namespace sru::models
