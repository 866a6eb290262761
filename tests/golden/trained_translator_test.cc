// The trained translator's translations on one backend: every token of the greedy and beam searches
// that the reference has recorded (expected.jsonl of checkpoints/translator_multi30k in
// SRU_SHARED_DIR, default ../shared, which export_shared_cases.py exports). In bfloat16 it reports
// how many are equal.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/translator.h"
#include "nlohmann/json.hpp"
#include "tests/golden/model_fixture.h"
#include "tests/testing/translation.h"

namespace sru {
namespace {

using nlohmann::json;

constexpr double kTolerance = 1e-3;  // of log-probabilities and scores
constexpr int kBatch = 16;
// Of the backends that are slow on a processor every so many sentences are translated.
constexpr int kSlowStep = 30;
// In bfloat16, of all searches: what rounded weights change, where two hypotheses are close.
constexpr double kLeastEqual = 0.9;

constexpr const char* kModel = SRU_SHARED_CASES "/translator_multi30k/1";

class TrainedTranslatorTest : public testing::ModelTest {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(kModel)) {
      GTEST_SKIP() << kModel << " is absent; the test export_trained_translators says why";
    }
    ASSERT_NO_FATAL_FAILURE(LoadModel(kModel));
    ASSERT_NE(model_->As<models::Translator>(), nullptr);
    kernels::ProgramLimits limits = models::TranslatorLimits(
        *model_->As<models::Translator>(), kBatch * 100, kBatch, kBatch * 100, kBatch * 8);
    limits.max_attention_values = int64_t{kBatch} * 8 * 100;
    MakeWorkspace(limits);
    MakeArena();
    std::ifstream file(std::string(kModel) + "/expected.jsonl");
    const bool is_slow = tested_.name != "cpu" && tested_.name != "cuda";
    int number = 0;
    for (std::string line; std::getline(file, line); ++number) {
      if (!is_slow || number % kSlowStep == 0) expected_.push_back(json::parse(line));
    }
    ASSERT_EQ(number, 300);
  }

  // Translates all sources with `options`; counts those that equal the recorded `key`.
  void Check(const std::string& key, const models::SearchOptions& options) {
    testing::TranslationDriver driver(model_->program(), *model_->As<models::Translator>(),
                                      model_->config().translator, arena_.get(), workspace_.get());
    for (size_t begin = 0; begin < expected_.size(); begin += kBatch) {
      const size_t end = std::min(begin + kBatch, expected_.size());
      std::vector<testing::Sentence> sentences;
      for (size_t i = begin; i < end; ++i) {
        auto ids = model_->tokenizer()->Encode(expected_[i]["source"].get<std::string>());
        ASSERT_TRUE(ids.ok()) << ids.status();
        EXPECT_EQ(*ids, expected_[i]["source_ids"].get<std::vector<int32_t>>());
        sentences.push_back({*std::move(ids), options, {}});
      }
      const auto found = driver.Translate(sentences, /*stagger=*/1);
      ASSERT_EQ(found.size(), sentences.size());
      for (size_t i = begin; i < end; ++i) {
        SCOPED_TRACE(key + " of " + expected_[i]["source"].get<std::string>());
        CheckOne(expected_[i], key, found[i - begin]);
      }
    }
  }

  void CheckOne(const json& line, const std::string& key, const testing::Translation& found) {
    const json expected = line[key].is_array() ? line[key] : json::array({line[key]});
    ASSERT_EQ(found.hypotheses.size(), expected.size());
    bool equal = true;
    for (size_t i = 0; i < expected.size(); ++i) {
      const models::FoundHypothesis& hypothesis = found.hypotheses[i];
      const bool same = hypothesis.tokens == expected[i]["tokens"].get<std::vector<int32_t>>();
      equal = equal && same;
      if (!is_bfloat16()) {
        EXPECT_TRUE(same) << i;
      }
      if (!same || is_bfloat16()) continue;
      EXPECT_EQ(hypothesis.finished, expected[i].value("finished", true));
      ExpectNear(expected[i]["log_prob"], hypothesis.log_prob);
      if (expected[i].contains("score")) ExpectNear(expected[i]["score"], hypothesis.score);
      EXPECT_EQ(expected[i]["text"], model_->tokenizer()->detokenizer()->Decode(hypothesis.tokens));
    }
    ++searches_;
    equal_ += equal ? 1 : 0;
    if (key == "greedy" && equal && !is_bfloat16()) {
      CheckAlignment(line["alignment"], line["source_ids"].size(), found.alignments[0]);
    }
  }

  // The best source token of each token, null where two are close.
  static void CheckAlignment(const json& expected, size_t sources,
                             const std::vector<float>& alignment) {
    ASSERT_EQ(alignment.size(), expected.size() * sources);
    for (size_t t = 0; t < expected.size(); ++t) {
      const auto row = alignment.begin() + static_cast<std::ptrdiff_t>(t * sources);
      const auto end = row + static_cast<std::ptrdiff_t>(sources);
      float sum = 0;
      for (auto weight = row; weight != end; ++weight) sum += *weight;
      EXPECT_NEAR(sum, 1, 1e-5);
      if (expected[t].is_null()) continue;
      EXPECT_EQ(std::max_element(row, end) - row, expected[t].get<int>()) << "token " << t;
    }
  }

  void ExpectNear(double expected, double found) {
    worst_ = std::max(worst_, std::abs(expected - found));
    EXPECT_NEAR(found, expected, kTolerance);
  }

  bool is_bfloat16() const { return tested_.dtype == kernels::DataType::kBFloat16; }

  std::vector<json> expected_;
  int searches_ = 0;
  int equal_ = 0;
  double worst_ = 0;
};

TEST_F(TrainedTranslatorTest, EveryTranslationIsThatOfTheReference) {
  Check("greedy", {1, 1, models::LengthPenalty::kNone, 0, 100});
  Check("beam5_best", {5, 1, models::LengthPenalty::kGnmt, 0.6, 100});
  Check("beam5", {5, 5, models::LengthPenalty::kGnmt, 0.6, 100});
  std::printf("%d of %d searches as recorded, log-probabilities and scores %.2g off at most\n",
              equal_, searches_, worst_);
  RecordProperty("equal", equal_);
  RecordProperty("largest_difference", std::to_string(worst_));
  EXPECT_EQ(static_cast<size_t>(searches_), 3 * expected_.size());
  EXPECT_GE(equal_, (is_bfloat16() ? kLeastEqual : 1.0) * searches_);
}

}  // namespace
}  // namespace sru
