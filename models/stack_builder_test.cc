#include "models/stack_builder.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/testing/checked.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using nlohmann::json;
using ::sru::testing::Checked;
using ::testing::HasSubstr;

ModelConfig Config(const json& root) {
  auto config = Checked(ParseModelConfig(root.dump(), "config.json"));
  return *config;
}

TEST(StackBuilderTest, BuildsAWholeModel) {
  TestTensors tensors = SmallTensors();
  const std::string bytes = Safetensors(tensors);
  auto file = Checked(SafetensorsFile::Parse(bytes, "model.safetensors"));
  auto spec = Checked(BuildStack(Config(SmallConfig()), **file));
  EXPECT_TRUE(kernels::Validate(*spec).ok()) << kernels::Validate(*spec).message();
  EXPECT_EQ(spec->input_size, 4);
  EXPECT_EQ(spec->vocabulary_size, 5);
  EXPECT_EQ(spec->embedding.data[3], tensors["embedding.weight"].values[3]);
  ASSERT_EQ(spec->layers.size(), 1u);
  EXPECT_EQ(spec->layers[0].directions, 2);
  EXPECT_EQ(spec->layers[0].num_matrices, 4);
  EXPECT_EQ(spec->layers[0].projection_size, 0);
  EXPECT_EQ(spec->layers[0].activation, kernels::Activation::kIdentity);
  EXPECT_EQ(spec->layers[0].layer_norm, kernels::LayerNorm::kNone);
  EXPECT_EQ(spec->pooling, kernels::Pooling::kMax);
  EXPECT_EQ(spec->num_labels, 2);
  EXPECT_EQ(spec->classifier_bias.size, 2u);
}

TEST(StackBuilderTest, TheClassifiersBiasIsOptional) {
  TestTensors tensors = SmallTensors();
  tensors.erase("out.bias");
  const std::string bytes = Safetensors(tensors);
  auto file = Checked(SafetensorsFile::Parse(bytes, "model.safetensors"));
  auto spec = Checked(BuildStack(Config(SmallConfig()), **file));
  EXPECT_TRUE(spec->classifier_bias.empty());
}

TEST(StackBuilderTest, NamesTheTensorThatIsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    std::function<void(TestTensors&)> change;
    absl::StatusCode code;
    std::string message;
  } kCases[] = {
      {[](TestTensors& t) { t.erase("embedding.weight"); }, absl::StatusCode::kNotFound,
       "tensor 'embedding.weight' is missing; expected F32 of shape [5, 4]"},
      {[](TestTensors& t) { t.erase("out.weight"); }, absl::StatusCode::kNotFound,
       "tensor 'out.weight' is missing"},
      {[](TestTensors& t) { t.erase("encoder.rnn_lst.0.scale_x"); }, absl::StatusCode::kNotFound,
       "tensor 'encoder.rnn_lst.0.scale_x' is missing"},
      {[](TestTensors& t) { t.erase("encoder.rnn_lst.0.weight_c"); }, absl::StatusCode::kNotFound,
       "tensor 'encoder.rnn_lst.0.weight_c' is missing"},
      {[](TestTensors& t) {
         t["encoder.rnn_lst.0.weight"] = MakeTensor({4, 18});
       },
       absl::StatusCode::kInvalidArgument,
       "tensor 'encoder.rnn_lst.0.weight': expected shape [4, 24], found [4, 18]"},
      {[](TestTensors& t) {
         t["out.weight"] = MakeTensor({3, 6});
       },
       absl::StatusCode::kInvalidArgument, "'out.weight': expected shape [2, 6], found [3, 6]"},
      {[](TestTensors& t) { t["out.bias"] = MakeTensor({3}); }, absl::StatusCode::kInvalidArgument,
       "'out.bias': expected shape [2], found [3]"},
      {[](TestTensors& t) {
         t["encoder.rnn_lst.1.weight"] = MakeTensor({6, 18});
       },
       absl::StatusCode::kInvalidArgument,
       "tensor 'encoder.rnn_lst.1.weight' of shape [6, 18] is not part of a model with this"},
      {[](TestTensors& t) {
         t["encoder.rnn_lst.0.weight_proj"] = MakeTensor({4, 2});
       },
       absl::StatusCode::kInvalidArgument, "'encoder.rnn_lst.0.weight_proj' of shape [4, 2]"},
      {[nan](TestTensors& t) { t["encoder.rnn_lst.0.bias"].values[11] = nan; },
       absl::StatusCode::kInvalidArgument,
       "tensor 'encoder.rnn_lst.0.bias': expected finite values, found nan at element 11"},
      {[nan](TestTensors& t) { t["encoder.rnn_lst.0.scale_x"].values[0] = nan; },
       absl::StatusCode::kInvalidArgument, "'encoder.rnn_lst.0.scale_x'"},
  };
  for (const auto& c : kCases) {
    TestTensors tensors = SmallTensors();
    c.change(tensors);
    const std::string bytes = Safetensors(tensors);
    auto file = Checked(SafetensorsFile::Parse(bytes, "model.safetensors"));
    const absl::Status status = BuildStack(Config(SmallConfig()), **file).status();
    EXPECT_EQ(status.code(), c.code) << c.message;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.message));
  }
}

TEST(StackBuilderTest, AlphaIsScaleXOnlyWithRescale) {
  TestTensors tensors = SmallTensors();
  tensors["encoder.rnn_lst.0.scale_x"].values[0] = 1.75f;
  const std::string bytes = Safetensors(tensors);
  auto file = Checked(SafetensorsFile::Parse(bytes, "model.safetensors"));
  ModelConfig config = Config(SmallConfig());
  EXPECT_EQ(BuildStack(config, **file)->layers[0].alpha, 1.0f);
  config.encoder.rescale = true;
  EXPECT_EQ(BuildStack(config, **file)->layers[0].alpha, 1.75f);
}

TEST(StackBuilderTest, V1DropsZerosAndKeepsWhatThePackageWouldUse) {
  TestTensors tensors = SmallTensors();
  const std::string kept = Safetensors(tensors);
  for (float& value : tensors["encoder.rnn_lst.0.weight_c"].values) value = 0.0f;
  const std::string zeros = Safetensors(tensors);
  ModelConfig config = Config(SmallConfig());
  config.encoder.v1 = true;
  EXPECT_TRUE(
      BuildStack(config, **SafetensorsFile::Parse(zeros, "zeros"))->layers[0].weight_c.empty());
  EXPECT_EQ(BuildStack(config, **SafetensorsFile::Parse(kept, "kept"))->layers[0].weight_c.size,
            12u);
}

// Every variant that the published package writes.
TEST(StackBuilderTest, BuildsEveryGoldenCase) {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator("tests/golden")) {
    if (entry.path().extension() != ".safetensors") continue;
    ++cases;
    const std::string name = entry.path().stem().string();
    SCOPED_TRACE(name);
    auto file = Checked(SafetensorsFile::Open(entry.path().string()));
    const json encoder = json::parse((*file)->metadata().at("sru_config"));
    const ModelConfig config =
        Config({{"format_version", 1}, {"pooling", "none"}, {"encoder", encoder}});
    TensorReader reader(**file);
    const kernels::StackSpec spec = ReadEncoder(config, "", reader);
    ASSERT_TRUE(reader.status().ok()) << reader.status();
    EXPECT_TRUE(kernels::Validate(spec).ok()) << kernels::Validate(spec).message();
    EXPECT_EQ(static_cast<int>(spec.layers.size()), config.encoder.num_layers);
    const kernels::LayerSpec& last = spec.layers.back();
    if (name == "v1") {
      EXPECT_TRUE(last.weight_c.empty());
    }
    if (name == "tanh") {
      EXPECT_EQ(last.activation, kernels::Activation::kTanh);
    }
    if (name == "no_skip") {
      EXPECT_FALSE(last.has_skip_term);
    }
    if (name == "pre_layer_norm") {
      EXPECT_EQ(last.layer_norm, kernels::LayerNorm::kBefore);
    }
    if (name == "post_layer_norm") {
      EXPECT_EQ(last.layer_norm, kernels::LayerNorm::kAfter);
    }
    if (name == "bi_projection") {
      EXPECT_EQ(last.projection_size, 6);
    }
    if (name == "input_to_hidden") {
      EXPECT_FALSE(spec.input_to_hidden.empty());
    }
    if (name == "uni_widening") {
      EXPECT_EQ(spec.layers[0].num_matrices, 4);
    }
    if (name == "rescale_bias_-3") {
      EXPECT_NEAR(last.alpha, std::sqrt(1.0 + 2.0 * std::exp(-3.0)), 1e-6);
    }
  }
  EXPECT_EQ(cases, 21);
}

}  // namespace
}  // namespace sru::models
