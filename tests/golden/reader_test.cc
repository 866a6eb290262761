// The program of a reader on one backend, against the reference: the logits of the cases that
// export_shared_cases.py has exported from golden_systems/reader, all that leads to them, and the
// spans that are made of them. Also: the same bits alone and in a batch, whatever else is asked of
// the same question.
#include "models/reader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "models/decoding/spans.h"
#include "models/safetensors.h"
#include "tests/golden/model_fixture.h"
#include "tests/testing/checkpoints.h"
#include "tests/testing/tested_backend.h"

namespace sru {
namespace {

namespace fs = std::filesystem;

// Of float32 logits and of the values that lead to them.
constexpr float kTolerance = 1e-4f;
// In bfloat16 weights and the rows between layers have 8 bits: of the largest value of a kind.
constexpr float kBFloat16Tolerance = 0.06f;

// Written by export_shared_cases.py, which is a test that runs before this one.
constexpr const char* kSharedCases = SRU_SHARED_CASES;

// Rows of some values each, one text after the other.
template <typename T>
struct Texts {
  std::vector<std::vector<T>> values;  // [text]

  // Of the texts `indices`, one after the other.
  std::vector<T> Join(const std::vector<int>& indices) const {
    std::vector<T> joined;
    for (const int i : indices) {
      joined.insert(joined.end(), values[i].begin(), values[i].end());
    }
    return joined;
  }
};

class ReaderTest : public ::testing::TestWithParam<std::string> {
 protected:
  // The outputs of a batch, by the names of the expected values.
  struct Results {
    std::vector<float> start;
    std::vector<float> end;
    std::vector<float> aligned;
    std::vector<float> passage_vectors;
    std::vector<float> question_vectors;
    std::vector<float> question_vector;
  };

  void SetUp() override {
    kernels::Status status = tested_.Create(&backend_);
    ASSERT_TRUE(status.ok()) << status.message();
    const fs::path directory = fs::path(kSharedCases) / GetParam() / "1";
    auto config = models::ReadModelConfig(directory / "config.json");
    ASSERT_TRUE(config.ok()) << config.status();
    config_ = *config;
    auto tensors = models::SafetensorsFile::Open(directory / "model.safetensors");
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    auto reader = models::BuildReader(config_, **tensors);
    ASSERT_TRUE(reader.ok()) << reader.status();
    reader_ = *std::move(reader);
    const auto add = [&](const char* name, kernels::ValueId value) {
      return value == kernels::kNone ? kernels::kNone : reader_.program.AddOutput(name, value);
    };
    aligned_ = add("aligned", reader_.aligned);
    passage_vectors_ = add("passage vectors", reader_.passage_vectors);
    question_vectors_ = add("question vectors", reader_.question_vectors);
    question_vector_ = add("question vector", reader_.question_vector);
    kernels::CompileOptions options;
    options.dtype = tested_.dtype;
    options.weights = (*tensors)->weights();
    status = backend_->Compile(reader_.program, options, &executable_);
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_NO_FATAL_FAILURE(ReadExpected());
    const auto pairs = static_cast<int>(passages_.values.size());
    status = executable_->CreateWorkspace(models::ReaderLimits(reader_, 2 * num_tokens_, 2 * pairs),
                                          &workspace_);
    ASSERT_TRUE(status.ok()) << status.message();
  }

  int width(kernels::ValueId value) const {
    kernels::ProgramShape shape;
    EXPECT_TRUE(kernels::Validate(reader_.program, &shape).ok());
    return shape.values[value].width;
  }

  // Passage i of these is read for question of[i] of these.
  Results Run(const std::vector<int>& passages, const std::vector<int>& questions,
              const std::vector<int32_t>& of) {
    const auto offsets = [](const Texts<int32_t>& texts, const std::vector<int>& indices) {
      std::vector<int32_t> ends = {0};
      for (const int i : indices) {
        ends.push_back(ends.back() + static_cast<int32_t>(texts.values[i].size()));
      }
      return ends;
    };
    const std::vector<int32_t> passage_offsets = offsets(passages_, passages);
    const std::vector<int32_t> question_offsets = offsets(questions_, questions);
    const std::vector<int32_t> passage_ids = passages_.Join(passages);
    const std::vector<int32_t> question_ids = questions_.Join(questions);
    const std::vector<float> features = features_.Join(passages);
    const std::vector<int32_t> pos = pos_.Join(passages);
    const std::vector<int32_t> ner = ner_.Join(passages);

    std::vector<kernels::AxisBatch> axes(reader_.program.axes.size());
    axes[reader_.passage].num_sequences = static_cast<int>(passages.size());
    axes[reader_.passage].offsets = passage_offsets.data();
    axes[reader_.question].num_sequences = static_cast<int>(questions.size());
    axes[reader_.question].offsets = question_offsets.data();
    std::vector<kernels::InputBatch> inputs(reader_.program.inputs.size());
    inputs[reader_.passage_ids].ids = passage_ids.data();
    inputs[reader_.question_ids].ids = question_ids.data();
    inputs[reader_.question_of].ids = of.data();
    if (reader_.passage_features != kernels::kNone) {
      inputs[reader_.passage_features].values = features.data();
    }
    if (reader_.pos_ids != kernels::kNone) inputs[reader_.pos_ids].ids = pos.data();
    if (reader_.ner_ids != kernels::kNone) inputs[reader_.ner_ids].ids = ner.data();

    Results results;
    std::vector<kernels::OutputBatch> outputs(reader_.program.outputs.size());
    const auto want = [&](int output, size_t rows, std::vector<float>* values) {
      if (output == kernels::kNone) return;
      values->assign(rows * width(reader_.program.outputs[output].value), NAN);
      outputs[output].values = values->data();
    };
    want(reader_.start_logits, passage_ids.size(), &results.start);
    want(reader_.end_logits, passage_ids.size(), &results.end);
    want(aligned_, passage_ids.size(), &results.aligned);
    want(passage_vectors_, passage_ids.size(), &results.passage_vectors);
    want(question_vectors_, question_ids.size(), &results.question_vectors);
    want(question_vector_, questions.size(), &results.question_vector);
    kernels::ProgramBatch batch;
    batch.axes = axes.data();
    batch.inputs = inputs.data();
    const kernels::Status status = executable_->Run(batch, outputs.data(), *workspace_);
    EXPECT_TRUE(status.ok()) << status.message();
    return results;
  }

  // The largest difference.
  float ExpectNear(const char* name, const std::vector<float>& found) const {
    const std::vector<float> expected = Expected(name);
    EXPECT_EQ(expected.size(), found.size()) << name;
    if (expected.size() != found.size()) return NAN;
    float largest = 0;
    float worst = 0;
    for (size_t i = 0; i < expected.size(); ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      worst = std::max(worst, std::abs(expected[i] - found[i]));
    }
    const bool bfloat16 = tested_.dtype == kernels::DataType::kBFloat16;
    EXPECT_LE(worst, bfloat16 ? kBFloat16Tolerance * std::max(1.0f, largest) : kTolerance) << name;
    return worst;
  }

  std::vector<float> Expected(const std::string& name) const {
    const models::TensorView* const view = expected_->Find(name);
    EXPECT_NE(view, nullptr) << name;
    if (view == nullptr) return {};
    const auto* const values = static_cast<const float*>(view->data);
    return {values, values + view->num_elements()};
  }

  const testing::TestedBackend tested_ = testing::TestedBackend::FromEnvironment();
  std::unique_ptr<kernels::Backend> backend_;
  models::ModelConfig config_;
  models::Reader reader_;
  std::unique_ptr<kernels::ProgramExecutable> executable_;
  std::unique_ptr<kernels::ProgramWorkspace> workspace_;
  int aligned_ = kernels::kNone;
  int passage_vectors_ = kernels::kNone;
  int question_vectors_ = kernels::kNone;
  int question_vector_ = kernels::kNone;
  Texts<int32_t> passages_, questions_, pos_, ner_;
  Texts<float> features_;
  std::unique_ptr<models::SafetensorsFile> expected_;
  int num_tokens_ = 0;  // of all passages

 private:
  // A tensor of int64 or float values, cut by the lengths.
  template <typename T, typename InFile>
  void Cut(const std::string& name, const std::vector<int64_t>& lengths, size_t row,
           Texts<T>* texts) {
    texts->values.resize(lengths.size());
    const models::TensorView* const view = expected_->Find(name);
    if (view == nullptr) return;
    const auto* from = static_cast<const InFile*>(view->data);
    for (size_t i = 0; i < lengths.size(); ++i) {
      const size_t count = static_cast<size_t>(lengths[i]) * row;
      for (size_t k = 0; k < count; ++k) texts->values[i].push_back(static_cast<T>(from[k]));
      from += count;
    }
  }

  std::vector<int64_t> Lengths(const std::string& name) {
    const models::TensorView* const view = expected_->Find(name);
    EXPECT_NE(view, nullptr) << name;
    if (view == nullptr) return {};
    const auto* const values = static_cast<const int64_t*>(view->data);
    return {values, values + view->num_elements()};
  }

  void ReadExpected() {
    const fs::path path = sru::testing::CheckpointsDirectory().parent_path() / "golden_systems" /
                          "reader" / GetParam() / "expected.safetensors";
    auto file = models::SafetensorsFile::Open(path);
    ASSERT_TRUE(file.ok()) << file.status();
    expected_ = *std::move(file);
    const std::vector<int64_t> lengths = Lengths("doc.lengths");
    for (const int64_t length : lengths) num_tokens_ += static_cast<int>(length);
    Cut<int32_t, int64_t>("doc.ids", lengths, 1, &passages_);
    Cut<int32_t, int64_t>("doc.pos", lengths, 1, &pos_);
    Cut<int32_t, int64_t>("doc.ner", lengths, 1, &ner_);
    Cut<float, float>("doc.features", lengths, config_.reader.features.size(), &features_);
    Cut<int32_t, int64_t>("question.ids", Lengths("question.lengths"), 1, &questions_);
    ASSERT_EQ(passages_.values.size(), questions_.values.size());
  }
};

TEST_P(ReaderTest, EqualsTheReference) {
  const size_t pairs = passages_.values.size();
  std::vector<int> all(pairs);
  for (size_t i = 0; i < pairs; ++i) all[i] = static_cast<int>(i);
  const Results found = Run(all, all, {all.begin(), all.end()});
  const float worst =
      std::max(ExpectNear("start.logits", found.start), ExpectNear("end.logits", found.end));
  RecordProperty("largest_difference", std::to_string(worst));
  if (aligned_ != kernels::kNone) ExpectNear("aligned", found.aligned);
  ExpectNear("doc.hidden", found.passage_vectors);
  ExpectNear("question.hidden", found.question_vectors);
  ExpectNear("question.vector", found.question_vector);
  EXPECT_EQ(aligned_ != kernels::kNone, config_.reader.use_qemb);
  if (tested_.dtype == kernels::DataType::kBFloat16) return;

  const models::TensorView* const spans = expected_->Find("best.spans");
  ASSERT_NE(spans, nullptr);
  const auto* const expected = static_cast<const int64_t*>(spans->data);
  const std::vector<float> scores = Expected("best.log_scores");
  const std::vector<float> probabilities = Expected("best.probabilities");
  const auto top = static_cast<size_t>(spans->shape[1]);
  size_t first = 0;
  for (size_t i = 0; i < pairs; ++i) {
    const size_t size = passages_.values[i].size();
    const std::vector<models::Span> best =
        models::BestSpans(&found.start[first], &found.end[first], size,
                          {config_.reader.max_len, static_cast<int>(top), /*no_overlap=*/false});
    for (size_t k = 0; k < top; ++k) {
      const size_t at = i * top + k;
      ASSERT_EQ(k < best.size(), expected[2 * at] >= 0) << "pair " << i << ", span " << k;
      if (k >= best.size()) break;
      EXPECT_EQ(best[k].first, expected[2 * at]) << "pair " << i << ", span " << k;
      EXPECT_EQ(best[k].last, expected[2 * at + 1]) << "pair " << i << ", span " << k;
      EXPECT_NEAR(best[k].log_score, scores[at], 2e-4) << "pair " << i << ", span " << k;
      EXPECT_NEAR(best[k].probability, probabilities[at], 1e-4) << "pair " << i << ", span " << k;
    }
    first += size;
  }
}

TEST_P(ReaderTest, APairHasTheSameBitsInAnyBatch) {
  const auto pairs = static_cast<int>(passages_.values.size());
  // Every passage twice, for its own question and for another, and the questions in another order.
  std::vector<int> passages;
  std::vector<int> questions;
  std::vector<int32_t> of;
  for (int i = 0; i < pairs; ++i) questions.push_back(pairs - 1 - i);
  for (int i = 0; i < 2 * pairs; ++i) {
    passages.push_back(i % pairs);
    of.push_back((i < pairs ? pairs - 1 - i : i) % pairs);
  }
  const Results together = Run(passages, questions, of);
  size_t first = 0;
  for (size_t i = 0; i < passages.size(); ++i) {
    const Results alone = Run({passages[i]}, {questions[of[i]]}, {0});
    const size_t size = passages_.values[passages[i]].size();
    ASSERT_EQ(alone.start.size(), size);
    const auto same = [&](const std::vector<float>& a, const std::vector<float>& b) {
      return std::memcmp(a.data(), &b[first], size * sizeof(float)) == 0;
    };
    EXPECT_TRUE(same(alone.start, together.start)) << "passage " << i;
    EXPECT_TRUE(same(alone.end, together.end)) << "passage " << i;
    first += size;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, ReaderTest, ::testing::ValuesIn(testing::Folders(kSharedCases)),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ReaderTest);

TEST(SharedReadersTest, AreThere) {
  if (!fs::exists(kSharedCases)) {
    GTEST_SKIP() << kSharedCases << " is absent; the test export_shared_readers says why";
  }
  EXPECT_EQ(testing::Folders(kSharedCases).size(), 6u);
}

}  // namespace
}  // namespace sru
