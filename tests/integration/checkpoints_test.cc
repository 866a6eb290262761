// Checkpoints that the published package trained are exported with models/export_torch.py and
// called over the wire: every recorded sentence gets its logits, within 1e-3, and the label of the
// largest. (The recorded "label" is the right answer, which the model gives as often as the
// checkpoint's test_accuracy says.) The reader's answers are the recorded ones.
//
// Needs the directory checkpoints/ of SRU_SHARED_DIR (default ../shared) and a Python with torch;
// skipped otherwise.
#include "tests/testing/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/testing/python_with_torch.h"
#include "tests/testing/subprocess.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

namespace fs = std::filesystem;

class CheckpointsTest : public ::testing::TestWithParam<std::pair<const char*, size_t>> {
 protected:
  // Exports the checkpoint into `repository_`.
  void SetUp() override {
    if (!fs::exists(checkpoint_)) {
      GTEST_SKIP() << checkpoint_ << " is absent; set SRU_SHARED_DIR to the directory that has it";
    }
    const std::string python = PythonWithTorch();
    if (python.empty()) {
      GTEST_SKIP() << "no python3 can import torch (apt install python3-torch)";
    }
    Subprocess exporter(
        {python, "models/export_torch.py", "--checkpoint", checkpoint_ / "checkpoint.pt",
         "--config", checkpoint_ / "config.json", "--vocab", checkpoint_ / "vocab.txt", "--labels",
         checkpoint_ / "labels.txt", "--out", repository_.path(absl::StrCat(name_, "/1"))});
    ASSERT_EQ(exporter.Wait(absl::Minutes(3)), 0) << exporter.err();
    std::ifstream file(checkpoint_ / "expected.jsonl");
    for (std::string line; std::getline(file, line);) {
      sentences_.push_back(nlohmann::json::parse(line));
    }
    ASSERT_EQ(sentences_.size(), GetParam().second);
  }

  // Classifies sentences [begin, end) in one call.
  void Classify(RunningServer& server, size_t begin, size_t end,
                v1::ClassifyResponse* response) const {
    v1::ClassifyRequest request;
    for (size_t i = begin; i < end; ++i) {
      request.add_sequences()->set_text(sentences_[i]["text"].get<std::string>());
    }
    const grpc::Status status = server.Classify(request, response);
    ASSERT_TRUE(status.ok()) << status.error_message();
  }

  static constexpr size_t kPerCall = 100;
  const std::string name_ = GetParam().first;
  const fs::path checkpoint_ = CheckpointsDirectory() / name_;
  models::TempDirectory repository_;
  std::vector<nlohmann::json> sentences_;  // of expected.jsonl
};

TEST_P(CheckpointsTest, EverySentenceGetsItsLabelAndLogits) {
  RunningServer server(TestOptions(repository_.path()));
  ASSERT_TRUE(server.started());
  double worst = 0;
  int right = 0;
  for (size_t begin = 0; begin < sentences_.size(); begin += kPerCall) {
    const size_t end = std::min(begin + kPerCall, sentences_.size());
    v1::ClassifyResponse response;
    ASSERT_NO_FATAL_FAILURE(Classify(server, begin, end, &response));
    for (size_t i = begin; i < end; ++i) {
      const v1::Classification& answer = response.classifications(static_cast<int>(i - begin));
      const nlohmann::json& expected = sentences_[i];
      EXPECT_EQ(answer.token_count(), static_cast<int>(expected["tokens"].size())) << expected;
      const auto logits = expected["logits"].get<std::vector<double>>();
      ASSERT_EQ(answer.labels_size(), static_cast<int>(logits.size()));
      EXPECT_EQ(answer.labels(0).index(),
                std::max_element(logits.begin(), logits.end()) - logits.begin())
          << expected;
      right += answer.labels(0).name() == expected["label"].get<std::string>();
      for (const v1::Label& label : answer.labels()) {
        const double logit = logits[label.index()];
        worst = std::max(worst, std::abs(label.logit() - logit));
        EXPECT_NEAR(label.logit(), logit, 1e-3) << expected;
      }
    }
  }
  const auto config =
      nlohmann::json::parse(models::ReadWholeFile((checkpoint_ / "config.json").string()));
  EXPECT_NEAR(right / static_cast<double>(sentences_.size()), config["test_accuracy"].get<double>(),
              1e-9);
  RecordProperty("largest_difference", std::to_string(worst));
}

// The same checkpoints in bfloat16 give the label of float32 on at least 99.5% of the sentences,
// and an accuracy within 0.3 points.
TEST_P(CheckpointsTest, BFloat16GivesTheSameLabels) {
  std::vector<std::string> labels[2];
  for (int i = 0; i < 2; ++i) {
    server::Options options = TestOptions(repository_.path());
    options.batching.compile.dtype =
        i == 0 ? kernels::DataType::kFloat32 : kernels::DataType::kBFloat16;
    RunningServer server(options);
    ASSERT_TRUE(server.started());
    for (size_t begin = 0; begin < sentences_.size(); begin += kPerCall) {
      const size_t end = std::min(begin + kPerCall, sentences_.size());
      v1::ClassifyResponse response;
      ASSERT_NO_FATAL_FAILURE(Classify(server, begin, end, &response));
      for (const v1::Classification& answer : response.classifications()) {
        labels[i].push_back(answer.labels(0).name());
      }
    }
  }
  const double count = static_cast<double>(sentences_.size());
  int same = 0;
  int right[2] = {0, 0};
  for (size_t t = 0; t < sentences_.size(); ++t) {
    same += labels[0][t] == labels[1][t];
    const auto label = sentences_[t]["label"].get<std::string>();
    for (int i = 0; i < 2; ++i) right[i] += labels[i][t] == label;
  }
  std::cout << name_ << ": " << same << " of " << sentences_.size()
            << " labels are those of float32, " << right[1] << " are right, " << right[0]
            << " in float32\n";
  EXPECT_GE(same / count, 0.995);
  EXPECT_NEAR(right[1] / count, right[0] / count, 0.003);
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointsTest,
                         ::testing::Values(std::pair{"trec", size_t{500}},
                                           std::pair{"sst2", size_t{1821}},
                                           std::pair{"subj", size_t{1000}}),
                         [](const auto& info) { return std::string(info.param.first); });

class ReaderCheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(checkpoint_)) {
      GTEST_SKIP() << checkpoint_ << " is absent; set SRU_SHARED_DIR to the directory that has it";
    }
    const std::string python = PythonWithTorch();
    if (python.empty()) {
      GTEST_SKIP() << "no python3 can import torch (apt install python3-torch)";
    }
    Subprocess exporter({python, "models/export_torch.py", "--checkpoint",
                         checkpoint_ / "checkpoint.pt", "--config", checkpoint_ / "config.json",
                         "--vocab", checkpoint_ / "vocab.txt", "--out",
                         repository_.path("reader/1")});
    ASSERT_EQ(exporter.Wait(absl::Minutes(3)), 0) << exporter.err();
    server_ = std::make_unique<RunningServer>(TestOptions(repository_.path()));
    ASSERT_TRUE(server_->started());
  }

  std::vector<nlohmann::json> Recorded(const char* name) const {
    std::vector<nlohmann::json> recorded;
    std::ifstream file(checkpoint_ / name);
    for (std::string line; std::getline(file, line);) {
      recorded.push_back(nlohmann::json::parse(line));
    }
    return recorded;
  }

  v1::AnswerResponse Answer(const v1::AnswerRequest& request) {
    v1::AnswerResponse response;
    grpc::ClientContext context;
    const grpc::Status status = server_->stub().Answer(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  static void ExpectRecorded(const v1::SpanAnswer& answer, const nlohmann::json& recorded) {
    EXPECT_EQ(answer.text(), recorded["answer"].get<std::string>());
    EXPECT_EQ(answer.start_byte(), recorded["start_byte"].get<int>());
    EXPECT_EQ(answer.end_byte(), recorded["end_byte"].get<int>());
    EXPECT_EQ(answer.start_char(), recorded["start_char"].get<int>());
    EXPECT_EQ(answer.end_char(), recorded["end_char"].get<int>());
    EXPECT_NEAR(answer.log_score(), recorded["log_score"].get<double>(), 1e-3);
    EXPECT_NEAR(answer.probability(), recorded["probability"].get<double>(), 1e-3);
  }

  const fs::path checkpoint_ = CheckpointsDirectory() / "reader_squad";
  models::TempDirectory repository_;
  std::unique_ptr<RunningServer> server_;
};

TEST_F(ReaderCheckpointTest, EveryQuestionGetsItsAnswer) {
  const std::vector<nlohmann::json> recorded = Recorded("expected.jsonl");
  ASSERT_EQ(recorded.size(), 300u);
  for (size_t begin = 0; begin < recorded.size(); begin += 50) {
    v1::AnswerRequest request;
    request.set_top_n(3);
    for (size_t i = begin; i < begin + 50; ++i) {
      v1::Query* const query = request.add_queries();
      query->set_question(recorded[i]["question"].get<std::string>());
      query->add_passages(recorded[i]["paragraph"].get<std::string>());
    }
    const v1::AnswerResponse response = Answer(request);
    ASSERT_EQ(response.results_size(), 50);
    for (int i = 0; i < 50; ++i) {
      const nlohmann::json& expected = recorded[begin + i];
      ASSERT_EQ(response.results(i).answers_size(), 3) << expected;
      ExpectRecorded(response.results(i).answers(0), expected);
      // Those after the best may be nearly equal, so that only their scores are sure.
      for (int k = 1; k < 3; ++k) {
        EXPECT_NEAR(response.results(i).answers(k).log_score(),
                    expected["top3"][k]["log_score"].get<double>(), 1e-3);
      }
    }
  }
}

TEST_F(ReaderCheckpointTest, TheRightOneOfSeveralPassagesAnswers) {
  const std::vector<nlohmann::json> recorded = Recorded("expected_paragraphs.jsonl");
  ASSERT_EQ(recorded.size(), 40u);
  v1::AnswerRequest request;
  request.set_top_n(100);
  request.set_one_per_passage(true);
  for (const nlohmann::json& expected : recorded) {
    v1::Query* const query = request.add_queries();
    query->set_question(expected["question"].get<std::string>());
    for (const auto& passage : expected["paragraphs"]) {
      query->add_passages(passage.get<std::string>());
    }
  }
  const v1::AnswerResponse response = Answer(request);
  ASSERT_EQ(response.results_size(), 40);
  for (int i = 0; i < 40; ++i) {
    const v1::QueryAnswers& result = response.results(i);
    ASSERT_EQ(result.answers_size(), request.queries(i).passages_size());
    EXPECT_EQ(result.answers(0).passage(), recorded[i]["best_paragraph"].get<int>());
    for (const v1::SpanAnswer& answer : result.answers()) {
      ExpectRecorded(answer, recorded[i]["answers"][answer.passage()]);
    }
  }
}

}  // namespace
}  // namespace sru::testing
