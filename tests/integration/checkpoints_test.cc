// Checkpoints that the published package trained are exported with models/export_torch.py and
// called over the wire: every recorded sentence gets its logits, within 1e-3, and the label of the
// largest. (The recorded "label" is the right answer, which the model gives as often as the
// checkpoint's test_accuracy says.)
//
// Needs the directory checkpoints/ of SRU_SHARED_DIR (default ../shared) and a Python with torch;
// skipped otherwise.
#include "tests/testing/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/integration/python_with_torch.h"
#include "tests/integration/server_fixture.h"
#include "tests/testing/test_files.h"

namespace sru::testing {
namespace {

namespace fs = std::filesystem;

class CheckpointsTest : public ::testing::TestWithParam<std::pair<const char*, size_t>> {
 protected:
  // Exports the checkpoint into `repository_`.
  void SetUp() override {
    ExportCheckpoint(checkpoint_,
                     {"--vocab", checkpoint_ / "vocab.txt", "--labels", checkpoint_ / "labels.txt"},
                     repository_.path(absl::StrCat(name_, "/1")));
    if (IsSkipped() || HasFatalFailure()) return;
    std::ifstream file(checkpoint_ / "expected.jsonl");
    for (std::string line; std::getline(file, line);) {
      sentences_.push_back(nlohmann::json::parse(line));
    }
    ASSERT_EQ(sentences_.size(), GetParam().second);
  }

  // Classifies sentences [begin, end) in one call.
  v1::ClassifyResponse Classify(RunningServer& server, size_t begin, size_t end) const {
    v1::ClassifyRequest request;
    for (size_t i = begin; i < end; ++i) {
      request.add_sequences()->set_text(sentences_[i]["text"].get<std::string>());
    }
    return server.Must(request);
  }

  static constexpr size_t kPerCall = 100;
  const std::string name_ = GetParam().first;
  const fs::path checkpoint_ = CheckpointsDirectory() / name_;
  models::TempDirectory repository_;
  std::vector<nlohmann::json> sentences_;  // of expected.jsonl
};

TEST_P(CheckpointsTest, EverySentenceGetsItsLabelAndLogits) {
  RunningServer server(TestOptions(repository_.path()));
  double worst = 0;
  int right = 0;
  for (size_t begin = 0; begin < sentences_.size(); begin += kPerCall) {
    const size_t end = std::min(begin + kPerCall, sentences_.size());
    const v1::ClassifyResponse response = Classify(server, begin, end);
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
    for (size_t begin = 0; begin < sentences_.size(); begin += kPerCall) {
      const size_t end = std::min(begin + kPerCall, sentences_.size());
      const v1::ClassifyResponse response = Classify(server, begin, end);
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

}  // namespace
}  // namespace sru::testing
