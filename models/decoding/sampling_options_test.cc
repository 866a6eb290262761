#include "models/decoding/sampling_options.h"

#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

using ::testing::HasSubstr;

constexpr int kVocabulary = 10;
constexpr float kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinityOption = std::numeric_limits<float>::infinity();

std::string ErrorOf(const std::function<void(SamplingOptions*)>& set) {
  SamplingOptions options;
  set(&options);
  const absl::Status status = ValidateSampling(options, kVocabulary);
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  return std::string(status.message());
}

TEST(SamplingOptionsTest, TakesTheEndsOfEveryRange) {
  EXPECT_EQ(ErrorOf([](SamplingOptions*) {}), "");
  EXPECT_EQ(ErrorOf([](SamplingOptions* o) {
              *o = {100, std::numeric_limits<int>::max(), 1, 1, 100, 100, 100, {{9, 1000.0f}}};
            }),
            "");
  EXPECT_EQ(ErrorOf([](SamplingOptions* o) {
              *o = {1e-30f, 1, 1e-30f, 1e-30f, 0.01f, -100, -100, {{9, -1000.0f}, {0, 0.0f}}};
            }),
            "");
}

TEST(SamplingOptionsTest, NamesTheFieldThatIsOutOfRange) {
  struct FloatField {
    const char* name;
    float SamplingOptions::*member;
    float below, above;
  };
  for (const FloatField& field :
       {FloatField{"temperature", &SamplingOptions::temperature, -0.1f, 100.1f},
        FloatField{"top_p", &SamplingOptions::top_p, -0.1f, 1.1f},
        FloatField{"min_p", &SamplingOptions::min_p, -0.1f, 1.1f},
        FloatField{"repetition_penalty", &SamplingOptions::repetition_penalty, 0.009f, 100.1f},
        FloatField{"presence_penalty", &SamplingOptions::presence_penalty, -100.1f, 100.1f},
        FloatField{"frequency_penalty", &SamplingOptions::frequency_penalty, -100.1f, 100.1f}}) {
    for (const float value :
         {field.below, field.above, kNotANumber, kInfinityOption, -kInfinityOption}) {
      EXPECT_THAT(ErrorOf([&](SamplingOptions* o) { o->*field.member = value; }),
                  HasSubstr(std::string("sampling.") + field.name + ": expected "))
          << value;
    }
  }
  EXPECT_EQ(ErrorOf([](SamplingOptions* o) { o->top_p = 1.5f; }),
            "sampling.top_p: expected a number in [0, 1], found 1.5");
  EXPECT_EQ(ErrorOf([](SamplingOptions* o) { o->repetition_penalty = -1; }),
            "sampling.repetition_penalty: expected 0 (off) or a number in [0.01, 100], found -1");
  EXPECT_EQ(ErrorOf([](SamplingOptions* o) { o->top_k = -1; }),
            "sampling.top_k: expected 0 (off) or a positive number, found -1");
}

TEST(SamplingOptionsTest, NamesTheBiasThatIsWrong) {
  EXPECT_EQ(ErrorOf([](SamplingOptions* o) {
              o->logit_bias = {{10, 1.0f}};
            }),
            "sampling.logit_bias: expected token ids in [0, 10) as keys, found 10");
  EXPECT_THAT(ErrorOf([](SamplingOptions* o) {
                o->logit_bias = {{-1, 1.0f}};
              }),
              HasSubstr("found -1"));
  for (const float value : {1000.5f, -1000.5f, kNotANumber, kInfinityOption, -kInfinityOption}) {
    EXPECT_THAT(ErrorOf([&](SamplingOptions* o) {
                  o->logit_bias = {{1, 0.0f}, {3, value}};
                }),
                HasSubstr("sampling.logit_bias[3]: expected a number in [-1000, 1000]"))
        << value;
  }
  EXPECT_THAT(ErrorOf([](SamplingOptions* o) {
                o->logit_bias = {{3, 1.0f}, {1, 0.0f}, {3, 2.0f}};
              }),
              HasSubstr("found 3 twice"));
}

TEST(SamplingOptionsTest, BoundsTheNumberOfBiases) {
  SamplingOptions options;
  for (int id = 0; id < 1024; ++id) options.logit_bias.emplace_back(id, 0.5f);
  EXPECT_TRUE(ValidateSampling(options, 5000).ok());
  options.logit_bias.emplace_back(1024, 0.5f);
  EXPECT_EQ(ValidateSampling(options, 5000).message(),
            "sampling.logit_bias: expected at most 1024 entries, found 1025");
}

TEST(SamplingOptionsTest, KnowsItsPenalties) {
  SamplingOptions options;
  options.repetition_penalty = 1;
  EXPECT_FALSE(options.has_penalties());
  options.repetition_penalty = 1.1f;
  EXPECT_TRUE(options.penalizes_repetition());
  EXPECT_TRUE(options.has_penalties());
  options.repetition_penalty = 0;
  options.frequency_penalty = -1;
  EXPECT_FALSE(options.penalizes_repetition());
  EXPECT_TRUE(options.has_penalties());
}

}  // namespace
}  // namespace sru::models
