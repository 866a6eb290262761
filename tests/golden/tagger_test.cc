// The program of a tagger on one backend, against the published package: the log-probabilities of
// the labels of the cases in tests/golden/tagger (README.md beside this file), and the same bits
// alone and in a batch.
#include "models/tagger.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/model.h"
#include "models/safetensors.h"
#include "tests/golden/model_fixture.h"

namespace sru {
namespace {

// Of float32 log-probabilities; in bfloat16 weights and the rows between layers have 8 bits.
constexpr float kTolerance = 5e-5f;
constexpr float kBFloat16Tolerance = 0.15f;

class TaggerTest : public testing::ModelTest, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    const std::string directory = std::string("tests/golden/tagger/") + GetParam();
    ASSERT_NO_FATAL_FAILURE(LoadModel(directory));
    ASSERT_NE(model_->As<models::Tagger>(), nullptr);
    auto expected = models::SafetensorsFile::Open(directory + "/expected.safetensors");
    ASSERT_TRUE(expected.ok()) << expected.status();
    expected_ = *std::move(expected);
    const models::TensorView* const lengths = expected_->Find("input.lengths");
    ASSERT_NE(lengths, nullptr);
    for (int64_t i = 0; i < lengths->shape[0]; ++i) {
      const auto length = static_cast<const int64_t*>(lengths->data)[i];
      offsets_.push_back(offsets_.back() + static_cast<int32_t>(length));
    }
    kernels::ProgramLimits limits;
    limits.axes.resize(model_->As<models::Tagger>()->program.axes.size());
    limits.axes[model_->As<models::Tagger>()->tokens] = {offsets_.back(),
                                                         static_cast<int>(lengths->shape[0])};
    MakeWorkspace(limits);
  }

  // The labels of the sequences from `first` to before `last`: [tokens][labels].
  std::vector<kernels::Candidate> Run(size_t first, size_t last) {
    const models::Tagger& tagger = *model_->As<models::Tagger>();
    const int begin = offsets_[first];
    std::vector<int32_t> offsets;
    for (size_t i = first; i <= last; ++i) offsets.push_back(offsets_[i] - begin);
    const std::vector<int32_t> counts(offsets.back(), tagger.max_labels);
    std::vector<kernels::AxisBatch> axes(tagger.program.axes.size());
    axes[tagger.tokens].num_sequences = static_cast<int>(last - first);
    axes[tagger.tokens].offsets = offsets.data();
    std::vector<kernels::InputBatch> inputs(tagger.program.inputs.size());
    inputs[tagger.counts].ids = counts.data();
    std::vector<int32_t> ids;
    if (tagger.ids != kernels::kNone) {
      const auto* tokens = static_cast<const int64_t*>(expected_->Find("input.tokens")->data);
      ids.assign(tokens + begin, tokens + offsets_[last]);
      inputs[tagger.ids].ids = ids.data();
    } else {
      inputs[tagger.features].values =
          static_cast<const float*>(expected_->Find("input.features")->data) +
          static_cast<ptrdiff_t>(begin) * model_->config().encoder.input_size;
    }
    std::vector<kernels::Candidate> labels(static_cast<size_t>(offsets.back()) * tagger.max_labels);
    std::vector<kernels::OutputBatch> outputs(tagger.program.outputs.size());
    outputs[tagger.labels].candidates = labels.data();
    RunProgram(axes, inputs, outputs);
    return labels;
  }

  std::unique_ptr<models::SafetensorsFile> expected_;
  std::vector<int32_t> offsets_ = {0};
};

TEST_P(TaggerTest, GivesTheLogProbabilitiesOfThePackage) {
  const auto* expected = static_cast<const float*>(expected_->Find("expected.log_probs")->data);
  const std::vector<kernels::Candidate> found = Run(0, offsets_.size() - 1);
  const auto num_labels = static_cast<size_t>(model_->As<models::Tagger>()->max_labels);
  ASSERT_EQ(num_labels, model_->labels().size());
  const float tolerance =
      tested_.dtype == kernels::DataType::kFloat32 ? kTolerance : kBFloat16Tolerance;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_GE(found[i].id, 0);
    const float wanted = expected[i / num_labels * num_labels + found[i].id];
    EXPECT_NEAR(found[i].log_prob, wanted, tolerance * std::max(1.0f, std::abs(wanted)))
        << "token " << i / num_labels << ", label " << found[i].id;
    if (i % num_labels > 0) {
      EXPECT_LE(found[i].log_prob, found[i - 1].log_prob);
    }
  }
}

TEST_P(TaggerTest, GivesTheSameBitsAloneAndInABatch) {
  const std::vector<kernels::Candidate> together = Run(0, offsets_.size() - 1);
  for (size_t i = 0; i + 1 < offsets_.size(); ++i) {
    const std::vector<kernels::Candidate> alone = Run(i, i + 1);
    const size_t begin =
        static_cast<size_t>(offsets_[i]) * model_->As<models::Tagger>()->max_labels;
    EXPECT_EQ(std::memcmp(alone.data(), together.data() + begin, alone.size() * sizeof(alone[0])),
              0)
        << "sequence " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TaggerTest, ::testing::Values("words", "frames"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace sru
