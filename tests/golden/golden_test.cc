// The golden cases: stacks, inputs and outputs that the published PyTorch package computed
// (README.md beside this file). The test runs once per backend and data type: SRU_BACKEND and
// SRU_DTYPE name them (testing/tested_backend.h). SRU_GOLDEN_DIR may name another directory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "models/config.h"
#include "models/safetensors.h"
#include "models/stack_builder.h"
#include "tests/testing/tested_backend.h"

namespace sru {
namespace {

// The absolute tolerance on h and c in float32. The recorded float32 values are within 2e-6 of a
// float64 evaluation.
constexpr float kTolerance = 1e-5f;
// The tolerance in bfloat16 for stacks of up to four layers; a quarter more for each further layer.
// The CUDA backend also stores the products in bfloat16, so a value above 1 is off by its own
// rounding: there the tolerance is relative to the value (rescale_bias_0 is off by 0.028 on -4.95).
constexpr float kBFloat16Tolerance = 2e-2f;
// A weight in int8 is off by up to 1 / 254 of its column's largest, evenly: the root of the mean
// square is 0.0023 of it. In bfloat16 weights that are even up to a largest value have 0.0007 of
// it, and activations add as much again: int8's error is 2.4 times bfloat16's, in the same places.
constexpr float kInt8Tolerance = 2.5f * kBFloat16Tolerance;
constexpr size_t kNumCases = 21;

std::string Environment(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : fallback;
}

std::vector<std::string> Cases() {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(Environment("SRU_GOLDEN_DIR", "tests/golden"), error)) {
    if (entry.path().extension() == ".safetensors") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string CaseName(const std::string& path) {
  std::string name = std::filesystem::path(path).stem().string();
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

// A float32 tensor [rows][batch][width] of the package: time or layer first.
class PaddedTensor {
 public:
  PaddedTensor(const models::SafetensorsFile& file, const std::string& name) {
    const models::TensorView* view = file.Find(name);
    if (view == nullptr || view->dtype.name != "F32" || view->shape.size() != 3) {
      return;
    }
    data_ = static_cast<const float*>(view->data);
    rows_ = view->shape[0];
    batch_ = view->shape[1];
    width_ = view->shape[2];
  }
  bool ok() const { return data_ != nullptr; }
  int64_t rows() const { return rows_; }
  int64_t batch() const { return batch_; }
  int64_t width() const { return width_; }
  const float* row(int64_t row, int64_t b) const { return data_ + (row * batch_ + b) * width_; }

 private:
  const float* data_ = nullptr;
  int64_t rows_ = 0, batch_ = 0, width_ = 0;
};

class GoldenTest : public ::testing::TestWithParam<std::string> {};

// Runs from features, and from the same values as the rows of an embedding.
TEST_P(GoldenTest, EqualsThePublishedPackage) {
  auto file = models::SafetensorsFile::Open(GetParam());
  ASSERT_TRUE(file.ok()) << file.status();
  const auto metadata = (*file)->metadata().find("sru_config");
  ASSERT_NE(metadata, (*file)->metadata().end());
  const auto config = models::ParseModelConfig(
      R"({"format_version": 1, "pooling": "none", "encoder": )" + metadata->second + "}",
      GetParam());
  ASSERT_TRUE(config.ok()) << config.status();
  models::TensorReader reader(**file);
  kernels::StackSpec spec = models::ReadEncoder(*config, "", reader);
  ASSERT_TRUE(reader.status().ok()) << reader.status();

  const PaddedTensor x(**file, "input.x");
  const PaddedTensor c0(**file, "input.c0");
  const PaddedTensor h(**file, "output.h");
  const PaddedTensor c(**file, "output.c");
  ASSERT_TRUE(x.ok() && h.ok() && c.ok());
  const models::TensorView* lengths_view = (*file)->Find("input.lengths");
  ASSERT_NE(lengths_view, nullptr);
  const auto* lengths = static_cast<const int64_t*>(lengths_view->data);
  const int64_t batch_size = x.batch();
  const int64_t layers = static_cast<int64_t>(spec.layers.size());
  const int64_t width = spec.output_size();
  ASSERT_EQ(c.rows(), layers);
  ASSERT_EQ(h.width(), width);

  std::vector<int32_t> offsets = {0};
  std::vector<float> features, initial_state;
  for (int64_t b = 0; b < batch_size; ++b) {
    offsets.push_back(offsets.back() + static_cast<int32_t>(lengths[b]));
    for (int64_t t = 0; t < lengths[b]; ++t) {
      features.insert(features.end(), x.row(t, b), x.row(t, b) + x.width());
    }
    for (int64_t i = 0; i < layers && c0.ok(); ++i) {
      initial_state.insert(initial_state.end(), c0.row(i, b), c0.row(i, b) + width);
    }
  }
  kernels::RaggedBatch batch;
  batch.num_sequences = static_cast<int>(batch_size);
  batch.offsets = offsets.data();
  batch.features = features.data();
  spec.vocabulary_size = batch.num_tokens();
  spec.embedding = {features.data(), features.size()};
  std::vector<int32_t> token_ids(batch.num_tokens());
  std::iota(token_ids.begin(), token_ids.end(), 0);
  std::vector<const float*> initial_states;
  for (int64_t b = 0; b < batch_size && c0.ok(); ++b) {
    initial_states.push_back(initial_state.data() + b * layers * width);
  }
  batch.initial_states = c0.ok() ? initial_states.data() : nullptr;

  std::vector<float> token_vectors(static_cast<size_t>(batch.num_tokens()) * width);
  std::vector<float> final_state(static_cast<size_t>(batch_size * layers * width));
  std::vector<kernels::SequenceOutput> outputs(batch_size);
  for (int64_t b = 0; b < batch_size; ++b) {
    outputs[b].token_vectors = &token_vectors[static_cast<size_t>(offsets[b]) * width];
    outputs[b].final_state = &final_state[static_cast<size_t>(b * layers * width)];
  }

  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<kernels::Executable> executable;
  std::unique_ptr<kernels::Workspace> workspace;
  const testing::TestedBackend tested = testing::TestedBackend::FromEnvironment();
  kernels::CompileOptions compile;
  compile.dtype = tested.dtype;
  const auto tolerance = [&](float expected) {
    const float depth = std::max(1.0f, static_cast<float>(layers) / 4.0f);
    switch (tested.dtype) {
      case kernels::DataType::kFloat32:
        return kTolerance;
      case kernels::DataType::kBFloat16:
        return kBFloat16Tolerance * depth *
               (tested.is_cuda() ? std::max(1.0f, std::abs(expected)) : 1.0f);
      case kernels::DataType::kInt8:
        return kInt8Tolerance * depth;
    }
    return 0.0f;
  };
  kernels::Status status = tested.Create(&backend);
  ASSERT_TRUE(status.ok()) << status.message();
  status = backend->Compile(spec, compile, &executable);
  ASSERT_TRUE(status.ok()) << status.message();
  status = executable->CreateWorkspace({batch.num_tokens(), batch.num_sequences}, &workspace);
  ASSERT_TRUE(status.ok()) << status.message();
  float largest = 0;  // of the differences, for reports: --gtest_output=json:FILE
  for (bool by_token : {false, true}) {
    SCOPED_TRACE(by_token ? "by token id" : "features");
    batch.token_ids = by_token ? token_ids.data() : nullptr;
    batch.features = by_token ? nullptr : features.data();
    status = executable->Run(batch, outputs.data(), *workspace);
    ASSERT_TRUE(status.ok()) << status.message();

    for (int64_t b = 0; b < batch_size; ++b) {
      for (int64_t j = 0; j < width; ++j) {
        for (int64_t t = 0; t < lengths[b]; ++t) {
          ASSERT_NEAR(h.row(t, b)[j], outputs[b].token_vectors[t * width + j],
                      tolerance(h.row(t, b)[j]))
              << "h of sequence " << b << ", token " << t << ", dimension " << j;
          largest =
              std::max(largest, std::abs(h.row(t, b)[j] - outputs[b].token_vectors[t * width + j]));
        }
        for (int64_t i = 0; i < layers; ++i) {
          ASSERT_NEAR(c.row(i, b)[j], outputs[b].final_state[i * width + j],
                      tolerance(c.row(i, b)[j]))
              << "c of sequence " << b << ", layer " << i << ", dimension " << j;
          largest =
              std::max(largest, std::abs(c.row(i, b)[j] - outputs[b].final_state[i * width + j]));
        }
      }
    }
  }
  RecordProperty("largest_difference", std::to_string(largest));
}

INSTANTIATE_TEST_SUITE_P(Cases, GoldenTest, ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return CaseName(info.param); });
// The test below, and not a missing instantiation, reports an empty directory.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenTest);

TEST(GoldenFilesTest, AllCasesAreThere) { EXPECT_EQ(Cases().size(), kNumCases); }

}  // namespace
}  // namespace sru
