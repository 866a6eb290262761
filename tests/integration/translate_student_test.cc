// Translate over the wire with the small students of tests/golden: the translations, n-best lists,
// scores and alignments of the reference, the same bytes alone and beside others, and every option
// of the search.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/testing/in_threads.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

using nlohmann::json;

// Least margin, in log-probability, of choices that must be the same: float32, and with rounded
// weights.
constexpr double kMargin = 1e-3;
constexpr double kInt8Margin = 0.06;
constexpr double kTolerance = 1e-4;
constexpr double kInt8Tolerance = 2e-2;

class TranslateStudentTest : public ::testing::TestWithParam<const char*> {
 protected:
  static void SetUpTestSuite() {
    repository_ = new models::TempDirectory();
    for (const char* const name : {"shared", "int8", "apart", "short", "long"}) {
      std::filesystem::create_directories(repository_->path(name));
    }
    for (const char* const name : {"shared", "int8", "apart"}) {
      std::filesystem::copy(absl::StrCat("tests/golden/student/", name),
                            repository_->path(absl::StrCat(name, "/1")));
    }
    // The same student, whose texts are cut into short parts, or not at all.
    for (const auto& [name, most] : {std::pair("short", 9), std::pair("long", 0)}) {
      const json config = {{"format_version", 1},
                           {"source", most > 0 ? "en" : "de"},
                           {"target", most > 0 ? "de" : "en"},
                           {"max_length_break", most}};
      std::filesystem::copy("tests/golden/student/shared",
                            repository_->path(absl::StrCat(name, "/1")));
      repository_->Write(absl::StrCat(name, "/1/config.json"), config.dump());
    }
    server_ = new RunningServer(TestOptions(repository_->path()));
  }
  static void TearDownTestSuite() {
    delete std::exchange(server_, nullptr);
    delete std::exchange(repository_, nullptr);
  }
  void SetUp() override {
    request_.set_model(GetParam());
    std::ifstream file(absl::StrCat("tests/golden/student/", GetParam(), "/expected.jsonl"));
    for (std::string line; std::getline(file, line);) {
      expected_.push_back(json::parse(line));
      request_.add_sequences()->set_text(expected_.back()["source"].get<std::string>());
    }
    ASSERT_FALSE(expected_.empty());
    request_.mutable_length_penalty()->set_form(v1::LengthPenalty::FORM_POWER);
    request_.mutable_length_penalty()->set_alpha(1);
    request_.set_max_length_factor(2);
  }

  v1::TranslateResponse MustTranslate(const v1::TranslateRequest& request) {
    const v1::TranslateResponse response = server_->Must(request);
    EXPECT_EQ(response.translations_size(), request.sequences_size());
    return response;
  }
  static bool is_int8() { return std::string(GetParam()) == "int8"; }
  static double margin() { return is_int8() ? kInt8Margin : kMargin; }
  static double tolerance() { return is_int8() ? kInt8Tolerance : kTolerance; }
  static std::vector<int32_t> Ids(const v1::Hypothesis& hypothesis) {
    return {hypothesis.token_ids().begin(), hypothesis.token_ids().end()};
  }

  static inline models::TempDirectory* repository_ = nullptr;
  static inline RunningServer* server_ = nullptr;
  std::vector<json> expected_;
  v1::TranslateRequest request_;
};

INSTANTIATE_TEST_SUITE_P(Students, TranslateStudentTest,
                         ::testing::Values("shared", "int8", "apart"));

TEST_P(TranslateStudentTest, GreedyTranslationsAreTheReferences) {
  request_.set_beam_size(1);
  request_.set_return_alignment(true);
  request_.set_return_hard_alignment(true);
  request_.set_return_token_log_probs(true);
  const v1::TranslateResponse response = MustTranslate(request_);
  int compared = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    SCOPED_TRACE(expected_[i]["source"]);
    const json& expected = expected_[i];
    const v1::Translation& translation = response.translations(static_cast<int>(i));
    // With </s>.
    const size_t width = expected["source_ids"].size() + 1;
    EXPECT_EQ(translation.token_count(), static_cast<int>(width));
    EXPECT_EQ(translation.source_tokens_size(), static_cast<int>(width));
    ASSERT_EQ(translation.hypotheses_size(), 1);
    const v1::Hypothesis& found = translation.hypotheses(0);
    ASSERT_EQ(found.alignment_size(), static_cast<int>(width * found.token_ids_size()));
    ASSERT_EQ(found.hard_alignment_size(), found.token_ids_size());
    for (int t = 0; t < found.token_ids_size(); ++t) {
      const auto row = found.alignment().begin() + static_cast<std::ptrdiff_t>(t * width);
      double sum = 0;
      for (size_t s = 0; s < width; ++s) sum += row[static_cast<std::ptrdiff_t>(s)];
      EXPECT_NEAR(sum, 1, 1e-5);
    }
    if (expected["greedy_margin"] < margin()) continue;
    ++compared;
    EXPECT_EQ(Ids(found), expected["greedy_ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(found.text(), expected["greedy"].get<std::string>());
    const size_t n = expected["greedy_word_scores"].size();
    EXPECT_EQ(found.unfinished(), n == expected["greedy_ids"].size());
    EXPECT_NEAR(found.log_prob(), expected["greedy_log_prob"], tolerance() * n);
    ASSERT_EQ(found.token_log_probs_size(), static_cast<int>(n));
    for (size_t t = 0; t < n; ++t) {
      EXPECT_NEAR(found.token_log_probs(static_cast<int>(t)), expected["greedy_word_scores"][t],
                  tolerance());
    }
    // Greedy search is Marian's beam of one: it is normalized, too.
    EXPECT_NEAR(found.score(), expected["greedy_score"], tolerance());
    for (int t = 0; t < found.hard_alignment_size(); ++t) {
      const json& looked = expected["greedy_alignment"][static_cast<size_t>(t)];
      if (looked.is_null()) continue;
      EXPECT_EQ(found.hard_alignment(t), looked.get<int>());
    }
  }
  EXPECT_GE(compared, is_int8() ? 1 : 5);
}

TEST_P(TranslateStudentTest, AllHypothesesOfANarrowingBeamAreTheReferences) {
  request_.set_beam_size(4);
  request_.set_num_hypotheses(4);
  const v1::TranslateResponse response = MustTranslate(request_);
  int compared = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    SCOPED_TRACE(expected_[i]["source"]);
    const json& expected = expected_[i]["beam4_nbest"];
    const v1::Translation& translation = response.translations(static_cast<int>(i));
    ASSERT_EQ(translation.hypotheses_size(), 4);
    if (expected_[i]["beam4_margin"] < (is_int8() ? 0.01 : kMargin)) continue;
    ++compared;
    for (int h = 0; h < 4; ++h) {
      EXPECT_EQ(Ids(translation.hypotheses(h)), expected[h]["ids"].get<std::vector<int32_t>>());
      EXPECT_NEAR(translation.hypotheses(h).score(), expected[h]["score"], tolerance());
    }
  }
  EXPECT_GE(compared, is_int8() ? 0 : 2);
}

TEST_P(TranslateStudentTest, ATextAloneHasTheBytesThatItHasBesideOthers) {
  request_.set_beam_size(3);
  request_.set_num_hypotheses(3);
  request_.set_return_alignment(true);
  const v1::TranslateResponse together = MustTranslate(request_);
  InThreads(request_.sequences_size(), [&](int i) {
    v1::TranslateRequest one = request_;
    *one.mutable_sequences() = {request_.sequences().begin() + i,
                                request_.sequences().begin() + i + 1};
    EXPECT_EQ(MustTranslate(one).translations(0).SerializeAsString(),
              together.translations(i).SerializeAsString());
  });
}

TEST_P(TranslateStudentTest, OnlyWordsOfTheSentencesListAreChosen) {
  if (!is_int8()) GTEST_SKIP() << "the model has no shortlist";
  request_.set_beam_size(8);
  request_.set_num_hypotheses(8);
  const v1::TranslateResponse response = MustTranslate(request_);
  for (size_t i = 0; i < expected_.size(); ++i) {
    const std::vector<int32_t> list = expected_[i]["choices"];
    for (const v1::Hypothesis& found : response.translations(static_cast<int>(i)).hypotheses()) {
      for (const int32_t id : found.token_ids()) {
        EXPECT_TRUE(std::binary_search(list.begin(), list.end(), id)) << id;
      }
    }
  }
}

TEST_P(TranslateStudentTest, APrefixIsKept) {
  request_.clear_sequences();
  request_.add_sequences()->set_text("a model");
  request_.add_target_prefixes("the batch");
  request_.set_beam_size(2);
  request_.set_max_length_factor(100);
  request_.set_max_new_tokens(40);
  const v1::Hypothesis found = MustTranslate(request_).translations(0).hypotheses(0);
  EXPECT_THAT(found.text(), ::testing::StartsWith("the batch"));
  EXPECT_TRUE(std::isfinite(found.log_prob()));
}

TEST_P(TranslateStudentTest, ATextWithoutPiecesIsNotSearchedFor) {
  request_.clear_sequences();
  request_.add_sequences()->set_text("");
  request_.add_sequences()->mutable_token_ids();
  const v1::TranslateResponse response = MustTranslate(request_);
  for (const v1::Translation& translation : response.translations()) {
    EXPECT_EQ(translation.token_count(), 0);
    ASSERT_EQ(translation.hypotheses_size(), 1);
    EXPECT_EQ(translation.hypotheses(0).text(), "");
    EXPECT_EQ(translation.hypotheses(0).score(), 0);
    EXPECT_FALSE(translation.hypotheses(0).unfinished());
  }
}

TEST_P(TranslateStudentTest, TextsAreCutWhereTheModelSaysSo) {
  const auto translated = [](const std::string& text, const std::string& from,
                             const std::string& to) {
    const HttpResponse response = HttpGet(
        server_->http_port(),
        absl::StrCat("/v2/translate?text=", text, "&source_lang=", from, "&target_lang=", to),
        "POST");
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body)["translations"][0]["text"].get<std::string>();
  };
  const std::string word = translated("model", "en", "de");
  EXPECT_EQ(translated("model", "de", "en"), word);
  EXPECT_EQ(translated("model+model", "en", "de"), word + " " + word);
  EXPECT_NE(translated("model+model", "de", "en"), word + " " + word);
}

TEST_P(TranslateStudentTest, TheWordPenaltyIsInTheScore) {
  request_.set_beam_size(2);
  request_.set_num_hypotheses(2);
  request_.set_word_penalty(0.5);
  const v1::TranslateResponse response = MustTranslate(request_);
  for (const v1::Translation& translation : response.translations()) {
    for (const v1::Hypothesis& found : translation.hypotheses()) {
      const int n = found.token_ids_size() + (found.unfinished() ? 0 : 1);
      EXPECT_NEAR(found.score(), found.log_prob() / n - 0.5, 1e-9);
    }
  }
}

}  // namespace
}  // namespace sru::testing
