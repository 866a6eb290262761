// Checkpoints that the published package trained, exported with models/export_torch.py and asked
// over the wire: every recorded sentence gets, within 1e-3, its logits, and the label of the
// largest of them. (The recorded "label" is the right answer, which the model gives as often as the
// checkpoint's test_accuracy says.)
//
// Needs the directory checkpoints/ of SRU_SHARED_DIR (default ../shared) and a Python with torch;
// skipped without.
#include "tests/testing/checkpoints.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "models/test_files.h"
#include "nlohmann/json.hpp"
#include "tests/integration/server_fixture.h"
#include "tests/testing/subprocess.h"

namespace sru::testing {
namespace {

namespace fs = std::filesystem;

// The python3 of the path may not be the distribution's, which has the package python3-torch.
std::string PythonWithTorch() {
  for (const char* python : {"python3", "/usr/bin/python3"}) {
    Subprocess import({python, "-c", "import torch"});
    if (import.Wait(absl::Minutes(2)) == 0) return python;
  }
  return "";
}

class CheckpointsTest : public ::testing::TestWithParam<std::pair<const char*, size_t>> {};

TEST_P(CheckpointsTest, EverySentenceGetsItsLabelAndLogits) {
  const auto [name, num_sentences] = GetParam();
  const fs::path checkpoint = CheckpointsDirectory() / name;
  if (!fs::exists(checkpoint)) {
    GTEST_SKIP() << checkpoint << " is absent; set SRU_SHARED_DIR to the directory that has it";
  }
  const std::string python = PythonWithTorch();
  if (python.empty()) {
    GTEST_SKIP() << "no python3 can import torch (apt install python3-torch)";
  }

  models::TempDirectory repository;
  Subprocess exporter({python, "models/export_torch.py", "--checkpoint",
                       checkpoint / "checkpoint.pt", "--config", checkpoint / "config.json",
                       "--vocab", checkpoint / "vocab.txt", "--labels", checkpoint / "labels.txt",
                       "--out", repository.path(absl::StrCat(name, "/1"))});
  ASSERT_EQ(exporter.Wait(absl::Minutes(3)), 0) << exporter.err();

  RunningServer server(TestOptions(repository.path()));
  ASSERT_TRUE(server.started());
  std::vector<nlohmann::json> sentences;
  std::ifstream file(checkpoint / "expected.jsonl");
  for (std::string line; std::getline(file, line);)
    sentences.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(sentences.size(), num_sentences);

  constexpr size_t kPerCall = 100;
  double worst = 0;
  int right = 0;
  for (size_t begin = 0; begin < sentences.size(); begin += kPerCall) {
    const size_t end = std::min(begin + kPerCall, sentences.size());
    v1::ClassifyRequest request;
    for (size_t i = begin; i < end; ++i) {
      request.add_sequences()->set_text(sentences[i]["text"].get<std::string>());
    }
    v1::ClassifyResponse response;
    const grpc::Status status = server.Classify(request, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    for (size_t i = begin; i < end; ++i) {
      const v1::Classification& answer = response.classifications(static_cast<int>(i - begin));
      const nlohmann::json& expected = sentences[i];
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
      nlohmann::json::parse(models::ReadWholeFile((checkpoint / "config.json").string()));
  EXPECT_NEAR(right / static_cast<double>(num_sentences), config["test_accuracy"].get<double>(),
              1e-9);
  RecordProperty("largest_difference", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(All, CheckpointsTest,
                         ::testing::Values(std::pair{"trec", size_t{500}},
                                           std::pair{"sst2", size_t{1821}},
                                           std::pair{"subj", size_t{1000}}),
                         [](const auto& info) { return std::string(info.param.first); });

}  // namespace
}  // namespace sru::testing
