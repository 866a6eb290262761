#include "models/language_model.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "tests/testing/checked.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::sru::testing::Checked;
using ::testing::HasSubstr;
using ::testing::Not;

class LanguageModelTest : public ::testing::Test {
 protected:
  LanguageModelTest() { EXPECT_TRUE(kernels::CreateBackend("reference", &backend_).ok()); }

  absl::StatusOr<std::shared_ptr<const Model>> Load(
      kernels::DataType dtype = kernels::DataType::kFloat32) {
    WriteModel(directory_, "lm", config_, tensors_);
    kernels::CompileOptions options;
    options.dtype = dtype;
    return Model::Load(directory_.path("lm"), "lm", 7, *backend_, options);
  }

  std::string Error() {
    auto model = Load();
    return model.ok() ? "" : std::string(model.status().message());
  }

  TempDirectory directory_;
  nlohmann::json config_ = SmallLanguageModelConfig();
  TestTensors tensors_ = SmallLanguageModelTensors();
  std::unique_ptr<kernels::Backend> backend_;
};

TEST_F(LanguageModelTest, Loads) {
  auto model = Checked(Load());
  EXPECT_EQ((*model)->task(), Task::kLanguageModel);
  ASSERT_NE((*model)->As<LanguageModel>(), nullptr);
  EXPECT_EQ((*model)->As<LanguageModel>()->max_candidates, 5);
  EXPECT_EQ((*model)->spec().vocabulary_size, 5);
  EXPECT_EQ((*model)->spec().output_size(), 3);
  // 20 of the embedding, 60 of the layer, 20 of the output layer.
  EXPECT_EQ((*model)->parameter_count(), 5 * 4 + (4 * 12 + 6 + 6) + 5 * 3 + 5);
  // A header, the rows of two fields, c of one layer and h.
  EXPECT_EQ((*model)->state_codec().bytes(), 96u + 2 * 4 + (3 + 3) * 4);
}

TEST_F(LanguageModelTest, ATiedWeightIsTakenOnce) {
  config_["encoder"]["input_size"] = 3;
  config_["tied"] = true;
  tensors_["embedding.weight"] = MakeTensor({5, 3});
  tensors_["encoder.rnn_lst.0.weight"] = MakeTensor({3, 9});
  EXPECT_THAT(Error(), HasSubstr("out.weight"));  // which is no part of it
  tensors_.erase("out.weight");
  auto model = Checked(Load());
  EXPECT_EQ((*model)->parameter_count(), 5 * 3 + (3 * 9 + 6 + 6) + 5);
}

TEST_F(LanguageModelTest, NamesTheTensorThatIsWrong) {
  tensors_.erase("out.weight");
  EXPECT_THAT(Error(), HasSubstr("out.weight"));
  tensors_ = SmallLanguageModelTensors();
  tensors_["out.weight"] = MakeTensor({5, 4});
  EXPECT_THAT(Error(), HasSubstr("out.weight"));
  tensors_ = SmallLanguageModelTensors();
  tensors_.erase("out.bias");
  EXPECT_THAT(Error(), HasSubstr("out.bias"));
  tensors_ = SmallLanguageModelTensors();
  tensors_["extra"] = MakeTensor({1});
  EXPECT_THAT(Error(), HasSubstr("extra"));
  tensors_ = SmallLanguageModelTensors();
  EXPECT_EQ(Error(), "");
}

TEST_F(LanguageModelTest, TellsItsStatesByWeightsAndType) {
  kernels::StateArena::State state;
  state.rows = {1, 1};
  state.values = {1, 2, 3, 4, 5, 6};
  auto model = Checked(Load());
  const std::string bytes = (*model)->state_codec().Encode(state, {});
  SequenceState found;
  EXPECT_TRUE((*model)->state_codec().Decode(bytes, &found).ok());
  EXPECT_EQ(found.state.values, state.values);
  auto again = Load();
  EXPECT_TRUE((*again)->state_codec().Decode(bytes, &found).ok());
  auto bfloat16 = Checked(Load(kernels::DataType::kBFloat16));
  EXPECT_FALSE((*bfloat16)->state_codec().Decode(bytes, &found).ok());
  tensors_["out.bias"] = MakeTensor({5});
  tensors_["out.bias"].values[0] += 1;
  auto retrained = Load();
  EXPECT_THAT((*retrained)->state_codec().Decode(bytes, &found).message(),
              HasSubstr("other weights"));
}

TEST_F(LanguageModelTest, AStackHasNone) {
  config_ = SmallConfig();
  tensors_ = SmallTensors();
  auto model = Checked(Load());
  EXPECT_EQ((*model)->As<LanguageModel>(), nullptr);
  EXPECT_THAT((*model)->labels(), Not(::testing::IsEmpty()));
}

}  // namespace
}  // namespace sru::models
