#include "models/decoding/token_picker.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/decoding/random.h"

namespace sru::models {

// For messages.
void PrintTo(const kernels::Adjustment& adjustment, std::ostream* out) {
  *out << "{" << adjustment.id << ", /" << adjustment.scale << ", +" << adjustment.add << "}";
}

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr float kForbidding = std::numeric_limits<float>::infinity();

MATCHER_P3(Adjusts, id, scale, add, "") {
  return arg.id == id && arg.scale == static_cast<float>(scale) &&
         arg.add == static_cast<float>(add);
}

TokenPicker Picker(const SamplingOptions& options, const DecodingMemo& memo = {}, uint64_t seed = 5,
                   int sample = 0) {
  return {std::make_shared<const SamplingOptions>(options), seed, sample, memo};
}

std::vector<kernels::Adjustment> AdjustmentsOf(const TokenPicker& picker,
                                               const std::vector<int32_t>& banned = {}) {
  std::vector<kernels::Adjustment> adjustments;
  picker.AppendAdjustments(banned, &adjustments);
  return adjustments;
}

TEST(TokenPickerTest, GreedyNeedsNothing) {
  SamplingOptions options;
  options.top_k = 3;
  TokenPicker picker = Picker(options);
  picker.AddPrompt({1, 2});
  picker.OnPicked(3);
  EXPECT_EQ(picker.Next().temperature, 0);
  EXPECT_THAT(AdjustmentsOf(picker), IsEmpty());
}

TEST(TokenPickerTest, HandsOnHowToSample) {
  SamplingOptions options;
  options.temperature = 0.5f;
  options.top_k = 3;
  options.top_p = 0.25f;
  options.min_p = 0.125f;
  const kernels::Sampling sampling = Picker(options).Next();
  EXPECT_EQ(sampling.temperature, 0.5f);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_EQ(sampling.top_p, 0.25f);
  EXPECT_EQ(sampling.min_p, 0.125f);
}

TEST(TokenPickerTest, TheRandomNumberIsThatOfThePlace) {
  SamplingOptions options;
  options.temperature = 1;
  TokenPicker picker = Picker(options, {}, 77, 3);
  picker.AddPrompt({4, 4, 4});
  EXPECT_EQ(picker.position(), 3);
  EXPECT_EQ(picker.Next().random, RandomAt(77, 3, 3));
  EXPECT_EQ(picker.Next().random, RandomAt(77, 3, 3));  // asking changes nothing
  picker.OnPicked(1);
  EXPECT_EQ(picker.Next().random, RandomAt(77, 3, 4));

  // The same place by way of a memo, with the rest of the prompt.
  DecodingMemo memo;
  memo.position = 2;
  TokenPicker resumed = Picker(options, memo, 77, 3);
  resumed.AddPrompt({4, 1});
  EXPECT_EQ(resumed.Next().random, picker.Next().random);
}

TEST(TokenPickerTest, PenalizesWhatHasCome) {
  SamplingOptions options;
  options.repetition_penalty = 2;
  options.presence_penalty = 0.5f;
  options.frequency_penalty = 0.25f;
  TokenPicker picker = Picker(options);
  picker.AddPrompt({9, 2, 9});
  EXPECT_THAT(AdjustmentsOf(picker), ElementsAre(Adjusts(2, 2, 0), Adjusts(9, 2, 0)));
  picker.OnPicked(5);
  picker.OnPicked(2);
  picker.OnPicked(5);
  EXPECT_THAT(AdjustmentsOf(picker),
              ElementsAre(Adjusts(2, 2, -0.75), Adjusts(5, 2, -1.0), Adjusts(9, 2, 0)));
}

TEST(TokenPickerTest, PresenceAndFrequencyAreOfTheTextAlone) {
  SamplingOptions options;
  options.presence_penalty = -1;
  TokenPicker picker = Picker(options);
  picker.AddPrompt({1});
  EXPECT_THAT(AdjustmentsOf(picker), IsEmpty());
  picker.OnPicked(1);
  picker.OnPicked(1);
  EXPECT_THAT(AdjustmentsOf(picker), ElementsAre(Adjusts(1, 1, 1)));
}

TEST(TokenPickerTest, AddsBiasesAfterPenaltiesAndBansByThem) {
  SamplingOptions options;
  options.frequency_penalty = 1;
  options.logit_bias = {{7, -100.0f}, {3, 2.0f}, {5, -99.5f}, {4, 0.0f}};
  TokenPicker picker = Picker(options);
  EXPECT_THAT(AdjustmentsOf(picker),
              ElementsAre(Adjusts(3, 1, 2), Adjusts(5, 1, -99.5), Adjusts(7, 1, -kForbidding)));
  picker.OnPicked(3);
  picker.OnPicked(4);
  EXPECT_THAT(AdjustmentsOf(picker),
              ElementsAre(Adjusts(3, 1, 1), Adjusts(4, 1, -1), Adjusts(5, 1, -99.5),
                          Adjusts(7, 1, -kForbidding)));
}

TEST(TokenPickerTest, BansWhatTheCallerNames) {
  SamplingOptions options;
  options.logit_bias = {{2, 1.0f}, {4, 1.0f}};
  const TokenPicker picker = Picker(options);
  EXPECT_THAT(
      AdjustmentsOf(picker, {0, 2, 2, 3, 9, 9}),
      ElementsAre(Adjusts(0, 1, -kForbidding), Adjusts(2, 1, -kForbidding),
                  Adjusts(3, 1, -kForbidding), Adjusts(4, 1, 1), Adjusts(9, 1, -kForbidding)));
  EXPECT_THAT(AdjustmentsOf(picker), ElementsAre(Adjusts(2, 1, 1), Adjusts(4, 1, 1)));
}

TEST(TokenPickerTest, AppendsToWhatIsThere) {
  SamplingOptions options;
  options.logit_bias = {{2, 1.0f}};
  std::vector<kernels::Adjustment> adjustments(1);
  Picker(options).AppendAdjustments({}, &adjustments);
  EXPECT_THAT(adjustments, ElementsAre(Adjusts(-1, 1, 0), Adjusts(2, 1, 1)));
}

// Random texts, against the equations over all tokens; stopping anywhere changes nothing.
TEST(TokenPickerTest, AgreesWithThePlainEquations) {
  constexpr int kVocabulary = 12;
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    SamplingOptions options;
    options.temperature = 1;
    options.repetition_penalty = random() % 2 == 0 ? 0 : 1.5f;
    options.presence_penalty = random() % 2 == 0 ? 0 : 0.5f;
    options.frequency_penalty = random() % 2 == 0 ? 0 : -0.25f;
    for (int id = 0; id < kVocabulary; ++id) {
      if (random() % 4 == 0) options.logit_bias.emplace_back(id, id % 3 == 0 ? -100.0f : 0.75f);
    }
    std::shuffle(options.logit_bias.begin(), options.logit_bias.end(), random);
    TokenPicker picker = Picker(options);
    std::vector<int32_t> prompt(random() % 8);
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % kVocabulary);
    picker.AddPrompt(prompt);
    std::vector<int32_t> text;
    for (int step = 0; step < 10; ++step) {
      if (random() % 4 == 0) {
        DecodingMemo memo;
        picker.WriteTo(&memo);
        picker = Picker(options, memo);
      }
      std::vector<float> scale(kVocabulary, 1);
      std::vector<float> add(kVocabulary, 0);
      for (const kernels::Adjustment& adjustment : AdjustmentsOf(picker)) {
        scale[adjustment.id] = adjustment.scale;
        add[adjustment.id] = adjustment.add;
      }
      for (int id = 0; id < kVocabulary; ++id) {
        const auto count = static_cast<float>(std::count(text.begin(), text.end(), id));
        const bool in_prompt = std::count(prompt.begin(), prompt.end(), id) > 0;
        float bias = 0;
        for (const auto& [biased, value] : options.logit_bias) bias = biased == id ? value : bias;
        const bool repeats = options.penalizes_repetition() && (in_prompt || count > 0);
        if (bias <= -100) {
          ASSERT_EQ(add[id], -kForbidding);
          continue;
        }
        ASSERT_EQ(scale[id], repeats ? options.repetition_penalty : 1);
        ASSERT_EQ(add[id], (count > 0 ? -options.presence_penalty : 0) -
                               options.frequency_penalty * count + bias);
      }
      ASSERT_EQ(picker.Next().random,
                RandomAt(5, 0, static_cast<int64_t>(prompt.size() + text.size())));
      const auto picked = static_cast<int32_t>(random() % kVocabulary);
      picker.OnPicked(picked);
      text.push_back(picked);
    }
  }
}

TEST(TokenPickerTest, CountsOnlyWhatAPenaltyNeeds) {
  SamplingOptions options;
  DecodingMemo memo;
  TokenPicker plain = Picker(options);
  plain.AddPrompt({1});
  plain.OnPicked(2);
  plain.WriteTo(&memo);
  EXPECT_EQ(memo.position, 2);
  EXPECT_THAT(memo.counts, IsEmpty());
  EXPECT_THAT(memo.prompt_ids, IsEmpty());

  options.presence_penalty = 1;
  TokenPicker presence = Picker(options);
  presence.AddPrompt({1});
  presence.OnPicked(2);
  presence.WriteTo(&memo);
  EXPECT_THAT(memo.counts, ElementsAre(std::pair(2, 1)));
  EXPECT_THAT(memo.prompt_ids, IsEmpty());

  options.repetition_penalty = 2;
  TokenPicker repetition = Picker(options, memo);
  repetition.AddPrompt({3, 1, 3});
  repetition.OnPicked(2);
  repetition.OnPicked(1);
  repetition.WriteTo(&memo);
  EXPECT_THAT(memo.counts, ElementsAre(std::pair(1, 1), std::pair(2, 2)));
  EXPECT_THAT(memo.prompt_ids, ElementsAre(1, 3));

  // A call without penalties hands on what it got.
  TokenPicker after = Picker(SamplingOptions(), memo);
  after.OnPicked(9);
  EXPECT_THAT(AdjustmentsOf(after), IsEmpty());
  DecodingMemo same;
  after.WriteTo(&same);
  EXPECT_EQ(same.counts, memo.counts);
  EXPECT_EQ(same.prompt_ids, memo.prompt_ids);
}

TEST(TokenPickerTest, ACopyGoesOnByItself) {
  SamplingOptions options;
  options.presence_penalty = 1;
  TokenPicker one = Picker(options);
  TokenPicker other = one;
  one.OnPicked(1);
  EXPECT_THAT(AdjustmentsOf(one), ElementsAre(Adjusts(1, 1, -1)));
  EXPECT_THAT(AdjustmentsOf(other), IsEmpty());
  EXPECT_EQ(other.position(), 0);
}

// A prompt of all different tokens, descending, where inserting one by one would be quadratic.
TEST(TokenPickerTest, TakesALongPromptInOneGo) {
  SamplingOptions options;
  options.repetition_penalty = 2;
  constexpr int kTokens = 1'000'000;
  std::vector<int32_t> prompt;
  for (int id = kTokens; id-- > 0;) prompt.push_back(id);
  TokenPicker picker = Picker(options);
  picker.AddPrompt(prompt);
  EXPECT_EQ(AdjustmentsOf(picker).size(), static_cast<size_t>(kTokens));
}

}  // namespace
}  // namespace sru::models
