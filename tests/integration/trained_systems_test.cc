// A trained reader and a trained translator are exported with models/export_torch.py and called
// over the wire: every recorded question gets its answers with their offsets,
// every recorded sentence its translations, token by token, and their scores within 1e-3.
//
// Needs the directory checkpoints/ of SRU_SHARED_DIR (default ../shared) and a Python with torch;
// skipped otherwise.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/python_with_torch.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/checkpoints.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kTolerance = 1e-3;  // of log-probabilities, scores and probabilities
constexpr size_t kPerCall = 30;

// A server of one checkpoint.
class TrainedSystemTest : public ::testing::Test {
 protected:
  // Exports checkpoints/<name> and starts a server of it, or skips the test.
  void Serve(const std::string& name, const char* text_flag, const char* text_file) {
    checkpoint_ = CheckpointsDirectory() / name;
    ExportCheckpoint(checkpoint_, {text_flag, checkpoint_ / text_file},
                     repository_.path(name + "/1"));
    if (IsSkipped() || HasFatalFailure()) return;
    server_ = std::make_unique<RunningServer>(TestOptions(repository_.path()));
  }

  // The recorded objects of a file beside the checkpoint.
  std::vector<json> Recorded(const std::string& name, size_t count) const {
    std::vector<json> objects;
    std::ifstream file(checkpoint_ / name);
    for (std::string line; std::getline(file, line);) objects.push_back(json::parse(line));
    EXPECT_EQ(objects.size(), count);
    return objects;
  }

  fs::path checkpoint_;
  models::TempDirectory repository_;
  std::unique_ptr<RunningServer> server_;
};

class TrainedReaderTest : public TrainedSystemTest {
 protected:
  void SetUp() override { Serve("reader_squad", "--vocab", "vocab.txt"); }

  v1::AnswerResponse Answer(const v1::AnswerRequest& request) {
    const v1::AnswerResponse response = server_->Must(request);
    EXPECT_EQ(response.results_size(), request.queries_size());
    return response;
  }

  static void ExpectSpan(const v1::SpanAnswer& answer, const json& recorded) {
    EXPECT_EQ(answer.text(), recorded["answer"].get<std::string>());
    EXPECT_EQ(answer.start_byte(), recorded["start_byte"].get<int>());
    EXPECT_EQ(answer.end_byte(), recorded["end_byte"].get<int>());
    EXPECT_EQ(answer.start_char(), recorded["start_char"].get<int>());
    EXPECT_EQ(answer.end_char(), recorded["end_char"].get<int>());
    EXPECT_NEAR(answer.log_score(), recorded["log_score"].get<double>(), kTolerance);
    EXPECT_NEAR(answer.probability(), recorded["probability"].get<double>(), kTolerance);
  }
};

TEST_F(TrainedReaderTest, EveryQuestionGetsItsAnswers) {
  const std::vector<json> questions = Recorded("expected.jsonl", 300);
  for (size_t begin = 0; begin < questions.size(); begin += kPerCall) {
    const size_t end = std::min(begin + kPerCall, questions.size());
    v1::AnswerRequest request;
    request.set_top_n(3);
    for (size_t i = begin; i < end; ++i) {
      v1::Query* query = request.add_queries();
      query->set_question(questions[i]["question"].get<std::string>());
      query->add_passages(questions[i]["paragraph"].get<std::string>());
    }
    const v1::AnswerResponse response = Answer(request);
    ASSERT_EQ(response.results_size(), static_cast<int>(end - begin));
    for (size_t i = begin; i < end; ++i) {
      SCOPED_TRACE(questions[i]["question"].get<std::string>());
      const v1::QueryAnswers& result = response.results(static_cast<int>(i - begin));
      ASSERT_EQ(result.answers_size(), static_cast<int>(questions[i]["top3"].size()));
      ExpectSpan(result.answers(0), questions[i]);
      for (int k = 0; k < result.answers_size(); ++k) {
        EXPECT_EQ(result.answers(k).passage(), 0);
        ExpectSpan(result.answers(k), questions[i]["top3"][k]);
      }
    }
  }
}

// The best of all passages, and the best of each.
TEST_F(TrainedReaderTest, TheBestPassageWins) {
  for (const json& recorded : Recorded("expected_paragraphs.jsonl", 40)) {
    SCOPED_TRACE(recorded["question"].get<std::string>());
    v1::AnswerRequest request;
    v1::Query* query = request.add_queries();
    query->set_question(recorded["question"].get<std::string>());
    for (const json& paragraph : recorded["paragraphs"]) {
      query->add_passages(paragraph.get<std::string>());
    }
    v1::AnswerResponse response = Answer(request);
    ASSERT_EQ(response.results_size(), 1);
    ASSERT_EQ(response.results(0).answers_size(), 1);
    const int best = recorded["best_paragraph"];
    EXPECT_EQ(response.results(0).answers(0).passage(), best);
    ExpectSpan(response.results(0).answers(0), recorded["answers"][best]);

    request.set_top_n(query->passages_size());
    request.set_one_per_passage(true);
    response = Answer(request);
    ASSERT_EQ(response.results_size(), 1);
    ASSERT_EQ(response.results(0).answers_size(), query->passages_size());
    EXPECT_EQ(response.results(0).answers(0).passage(), best);
    for (const v1::SpanAnswer& answer : response.results(0).answers()) {
      ExpectSpan(answer, recorded["answers"][answer.passage()]);
    }
  }
}

class TrainedTranslatorTest : public TrainedSystemTest {
 protected:
  void SetUp() override {
    Serve("translator_multi30k", "--subwords", "spm.model");
    if (IsSkipped() || HasFatalFailure()) return;
    sentences_ = Recorded("expected.jsonl", 300);
  }

  // The translations of sentences [begin, end), as `request` says.
  v1::TranslateResponse Translate(size_t begin, size_t end, v1::TranslateRequest request) {
    for (size_t i = begin; i < end; ++i) {
      request.add_sequences()->set_text(sentences_[i]["source"].get<std::string>());
    }
    const v1::TranslateResponse response = server_->Must(request);
    EXPECT_EQ(response.translations_size(), request.sequences_size());
    return response;
  }

  // Compares the hypotheses of every sentence with what `recorded` finds of it: a list.
  template <typename Find>
  void ExpectAll(const v1::TranslateRequest& request, const Find& recorded) {
    for (size_t begin = 0; begin < sentences_.size(); begin += kPerCall) {
      const size_t end = std::min(begin + kPerCall, sentences_.size());
      const v1::TranslateResponse response = Translate(begin, end, request);
      ASSERT_EQ(response.translations_size(), static_cast<int>(end - begin));
      for (size_t i = begin; i < end; ++i) {
        SCOPED_TRACE(sentences_[i]["source"].get<std::string>());
        const v1::Translation& translation = response.translations(static_cast<int>(i - begin));
        EXPECT_EQ(translation.token_count(), static_cast<int>(sentences_[i]["source_ids"].size()));
        const json expected = recorded(sentences_[i]);
        ASSERT_EQ(translation.hypotheses_size(), static_cast<int>(expected.size()));
        for (int k = 0; k < translation.hypotheses_size(); ++k) {
          ExpectHypothesis(translation.hypotheses(k), expected[k]);
        }
      }
    }
  }

  static void ExpectHypothesis(const v1::Hypothesis& hypothesis, const json& recorded) {
    EXPECT_EQ(hypothesis.text(), recorded["text"].get<std::string>());
    EXPECT_EQ(std::vector<int32_t>(hypothesis.token_ids().begin(), hypothesis.token_ids().end()),
              recorded["tokens"].get<std::vector<int32_t>>());
    EXPECT_EQ(hypothesis.tokens_size(), hypothesis.token_ids_size());
    EXPECT_NEAR(hypothesis.log_prob(), recorded["log_prob"].get<double>(), kTolerance);
    // The score of a greedy search is its log-probability.
    const double score = recorded.value("score", recorded["log_prob"].get<double>());
    EXPECT_NEAR(hypothesis.score(), score, kTolerance);
    EXPECT_EQ(hypothesis.unfinished(), !recorded.value("finished", true));
  }

  std::vector<json> sentences_;  // of expected.jsonl
};

TEST_F(TrainedTranslatorTest, GreedySearchAndItsAlignment) {
  v1::TranslateRequest request;
  request.set_beam_size(1);
  ExpectAll(request, [](const json& sentence) { return json::array({sentence["greedy"]}); });

  request.set_return_alignment(true);
  const v1::TranslateResponse response = Translate(0, kPerCall, request);
  int compared = 0;
  for (int i = 0; i < response.translations_size(); ++i) {
    const json& sentence = sentences_[i];
    SCOPED_TRACE(sentence["source"].get<std::string>());
    const v1::Translation& translation = response.translations(i);
    EXPECT_EQ(std::vector<std::string>(translation.source_tokens().begin(),
                                       translation.source_tokens().end()),
              sentence["pieces"].get<std::vector<std::string>>());
    const v1::Hypothesis& hypothesis = translation.hypotheses(0);
    const int width = translation.token_count();
    ASSERT_EQ(hypothesis.alignment_size(), width * hypothesis.token_ids_size());
    ASSERT_EQ(hypothesis.token_ids_size(), static_cast<int>(sentence["alignment"].size()));
    for (int t = 0; t < hypothesis.token_ids_size(); ++t) {
      const auto begin = hypothesis.alignment().begin() + t * width;
      double sum = 0;
      for (auto weight = begin; weight != begin + width; ++weight) sum += *weight;
      EXPECT_NEAR(sum, 1, 1e-5);
      if (sentence["alignment"][t].is_null()) continue;  // two are about the same
      ++compared;
      EXPECT_EQ(std::max_element(begin, begin + width) - begin,
                sentence["alignment"][t].get<int>());
    }
  }
  EXPECT_GT(compared, 200);
}

// With the model's own beam and length penalty.
TEST_F(TrainedTranslatorTest, TheBestOfABeam) {
  ExpectAll({}, [](const json& sentence) { return json::array({sentence["beam5_best"]}); });
}

TEST_F(TrainedTranslatorTest, TheFiveBestOfABeam) {
  v1::TranslateRequest request;
  request.set_beam_size(5);
  request.set_num_hypotheses(5);
  request.mutable_length_penalty()->set_form(v1::LengthPenalty::FORM_GNMT);
  request.mutable_length_penalty()->set_alpha(0.6f);
  ExpectAll(request, [](const json& sentence) { return sentence["beam5"]; });
}

}  // namespace
}  // namespace sru::testing
