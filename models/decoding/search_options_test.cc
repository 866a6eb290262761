#include "models/decoding/search_options.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

using ::testing::HasSubstr;

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
            "beam_size: expected an integer in [1, 64], found 0");
  EXPECT_THAT(ErrorOf([](SearchOptions* o) { o->beam_size = 65; }), HasSubstr("beam_size: "));
  EXPECT_THAT(ErrorOf([](SearchOptions* o) { o->beam_size = -1; }), HasSubstr("found -1"));
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { o->num_hypotheses = 6; }),
            "num_hypotheses: expected an integer in [1, 5], at most beam_size, found 6");
  EXPECT_THAT(ErrorOf([](SearchOptions* o) { o->num_hypotheses = 0; }), HasSubstr("found 0"));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double alpha : {-0.1, 10.1, kInfinity, -kInfinity, std::nan("")}) {
    EXPECT_THAT(ErrorOf([alpha](SearchOptions* o) { o->alpha = alpha; }),
                HasSubstr("length_penalty.alpha: expected a number in [0, 10], found "))
        << alpha;
    EXPECT_THAT(ErrorOf([alpha](SearchOptions* o) { o->word_penalty = 2000 * alpha; }),
                HasSubstr("word_penalty: expected a number in [-100, 100], found "))
        << alpha;
    EXPECT_THAT(ErrorOf([alpha](SearchOptions* o) { o->max_length_factor = 20 * alpha; }),
                HasSubstr("max_length_factor: expected a number in [0, 100], found "))
        << alpha;
  }
  EXPECT_EQ(ErrorOf([](SearchOptions* o) { o->max_length = 201; }),
            "max_new_tokens: expected an integer in [1, 200] (--max_new_tokens), found 201");
  EXPECT_THAT(ErrorOf([](SearchOptions* o) { o->max_length = 0; }), HasSubstr("found 0"));
}

}  // namespace
}  // namespace sru::models
