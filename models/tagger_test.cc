#include "models/tagger.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/model.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::testing::HasSubstr;

class TaggerTest : public ::testing::Test {
 protected:
  TaggerTest() { EXPECT_TRUE(kernels::CreateBackend("reference", &backend_).ok()); }

  absl::StatusOr<std::shared_ptr<const Model>> Load() {
    WriteModel(directory_, "tagger", config_, tensors_);
    return Model::Load(directory_.path("tagger"), "tagger", 1, *backend_, {});
  }

  std::string Error() {
    auto model = Load();
    return model.ok() ? "" : std::string(model.status().message());
  }

  TempDirectory directory_;
  nlohmann::json config_ = SmallTaggerConfig();
  TestTensors tensors_ = SmallTensors();
  std::unique_ptr<kernels::Backend> backend_;
};

TEST_F(TaggerTest, Loads) {
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->task(), Task::kTagger);
  ASSERT_NE((*model)->As<Tagger>(), nullptr);
  EXPECT_EQ((*model)->As<Tagger>()->max_labels, 2);
  EXPECT_EQ((*model)->labels().size(), 2u);
  EXPECT_EQ((*model)->spec().output_size(), 6);
  EXPECT_FALSE((*model)->is_unidirectional());
  EXPECT_EQ((*model)->parameter_count(), 5 * 4 + (4 * 24 + 12 + 12) + 2 * 6 + 2);
}

TEST_F(TaggerTest, MayHaveNoBiasAndTakeFeatures) {
  tensors_.erase("out.bias");
  EXPECT_EQ(Error(), "");
  config_.erase("embedding");
  config_.erase("preprocessing");
  EXPECT_THAT(Error(), HasSubstr("embedding.weight"));  // which is no part of it
  tensors_.erase("embedding.weight");
  auto model = Load();
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->As<Tagger>()->ids, kernels::kNone);
  EXPECT_EQ((*model)->tokenizer(), nullptr);
}

TEST_F(TaggerTest, NamesWhatIsWrong) {
  tensors_["out.weight"] = MakeTensor({3, 6});
  EXPECT_THAT(Error(), HasSubstr("out.weight"));
  tensors_ = SmallTensors();
  config_.erase("labels");
  EXPECT_THAT(Error(), HasSubstr("'labels'"));
  config_ = SmallTaggerConfig();
  config_["pooling"] = "max";
  EXPECT_THAT(
      Error(),
      HasSubstr("key 'pooling': expected \"none\", or no such key, beside task \"tagger\""));
  config_["pooling"] = "none";
  EXPECT_EQ(Error(), "");
}

}  // namespace
}  // namespace sru::models
