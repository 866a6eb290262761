#include "server/lifecycle/model_registry.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "models/config.h"
#include "models/repository.h"
#include "nlohmann/json.hpp"
#include "tests/testing/test_files.h"

namespace sru::server::lifecycle {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<ServedModel> Make(const std::string& name, int64_t version) {
  auto served = std::make_shared<ServedModel>();
  served->name = name;
  served->version = version;
  return served;
}

std::string Error(const ModelRegistry& registry, const std::string& name, int64_t version,
                  absl::StatusCode code) {
  const absl::Status status = registry.Find(name, version).status();
  EXPECT_EQ(status.code(), code);
  return std::string(status.message());
}

TEST(ModelRegistryTest, FindsByNameAndVersion) {
  ModelRegistry registry;
  EXPECT_THAT(Error(registry, "", 0, absl::StatusCode::kNotFound), HasSubstr("no model is loaded"));
  registry.Replace({Make("b", 2), Make("b", 10)});
  EXPECT_EQ((*registry.Find("", 0))->version, 10);
  EXPECT_EQ((*registry.Find("b", 2))->version, 2);
  EXPECT_THAT(Error(registry, "b", 3, absl::StatusCode::kNotFound), HasSubstr("loaded: 2, 10"));
  EXPECT_THAT(Error(registry, "b", -1, absl::StatusCode::kInvalidArgument), HasSubstr("-1"));
  EXPECT_THAT(Error(registry, "x", 0, absl::StatusCode::kNotFound), HasSubstr("loaded: b"));
  const std::string longest(models::kMaxModelNameBytes, 'x');
  EXPECT_THAT(Error(registry, longest, 0, absl::StatusCode::kNotFound), HasSubstr("xxx"));
  EXPECT_EQ(Error(registry, longest + "x", 0, absl::StatusCode::kInvalidArgument),
            "model: expected at most 128 bytes, found 129");
  registry.Replace({Make("b", 2), Make("a", 1)});
  EXPECT_THAT(Error(registry, "", 0, absl::StatusCode::kInvalidArgument), HasSubstr("a, b"));
  EXPECT_EQ(registry.List()[0]->name, "a");
}

// A call that may mean only one of several models need not name it.
TEST(ModelRegistryTest, AnEmptyNameMayMeanTheOnlyModelThatAnswers) {
  models::TempDirectory directory;
  models::WriteSmallModel(directory, "classifier");
  nlohmann::json config = models::SmallConfig();
  config.erase("labels");
  models::TestTensors tensors = models::SmallTensors();
  tensors.erase("out.weight");
  tensors.erase("out.bias");
  models::WriteModel(directory, "encoder", config, tensors);
  std::unique_ptr<kernels::Backend> backend;
  ASSERT_TRUE(kernels::CreateBackend("reference", {}, &backend).ok());
  const auto load = [&](const std::string& files, const std::string& name) {
    auto model = models::Model::Load(directory.path(files), name, 1, *backend, {});
    EXPECT_TRUE(model.ok()) << model.status();
    std::shared_ptr<ServedModel> served = Make(name, 1);
    if (model.ok()) served->model = *std::move(model);
    return served;
  };
  const calls::TaskSet classifies = {models::Task::kClassifier};
  const calls::TaskSet scores = {models::Task::kLanguageModel};

  ModelRegistry registry;
  registry.Replace({load("classifier", "c"), load("encoder", "e")});
  EXPECT_EQ((*registry.Find("", 0, classifies))->name, "c");
  EXPECT_EQ((*registry.Find("e", 0, classifies))->name, "e");  // what a name says counts
  const auto message = [&](calls::TaskSet tasks) {
    return std::string(registry.Find("", 0, tasks).status().message());
  };
  EXPECT_EQ(registry.Find("", 0, scores).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(message(scores),
            "model: no model with the task language_model is loaded; loaded: c, e");
  EXPECT_EQ(message({models::Task::kReader, models::Task::kTagger}),
            "model: no model with the task reader or tagger is loaded; loaded: c, e");
  EXPECT_EQ(registry.Find("", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(registry.Find("", 2, classifies).status().code(), absl::StatusCode::kNotFound);
  registry.Replace({load("classifier", "c"), load("classifier", "d"), load("encoder", "e")});
  EXPECT_EQ(registry.Find("", 0, classifies).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(message(classifies),
            "model: empty, expected a name as several models are loaded: c, d");
  // A stream needs one direction.
  nlohmann::json forward = models::SmallConfig();
  forward["encoder"]["bidirectional"] = false;
  models::TestTensors half = models::SmallLanguageModelTensors();
  half["out.weight"] = models::MakeTensor({2, 3});
  half["out.bias"] = models::MakeTensor({2});
  EXPECT_EQ(
      std::string(registry.Find("", 0, classifies, /*one_direction=*/true).status().message()),
      "model: no unidirectional model with the task classifier is loaded; loaded: c, d, e");
  models::WriteModel(directory, "forward", forward, half);
  registry.Replace({load("classifier", "c"), load("forward", "f"), load("encoder", "e")});
  EXPECT_EQ((*registry.Find("", 0, classifies, /*one_direction=*/true))->name, "f");
  registry.Replace({load("classifier", "c"), load("forward", "f"), load("forward", "g")});
  EXPECT_EQ(
      std::string(registry.Find("", 0, classifies, /*one_direction=*/true).status().message()),
      "model: empty, expected a name as several models are loaded: f, g");
  // The only model is meant even if it cannot answer: the error then names its task.
  registry.Replace({load("encoder", "e")});
  EXPECT_EQ((*registry.Find("", 0, classifies))->name, "e");
}

TEST(ModelRegistryTest, EachListHasItsGeneration) {
  ModelRegistry registry, other;
  const int64_t empty = registry.generation();
  EXPECT_EQ(other.generation(), empty);  // they list the same
  registry.Replace({});
  const int64_t first = registry.generation();
  EXPECT_NE(first, empty);
  other.Replace({});
  EXPECT_NE(other.generation(), first);
  EXPECT_EQ(registry.generation(), first);
  registry.Replace({});
  EXPECT_NE(registry.generation(), first);
}

TEST(ModelRegistryTest, WhatWasFoundOutlivesTheSnapshot) {
  ModelRegistry registry;
  registry.Replace({Make("m", 1)});
  const auto found = registry.Find("m", 0);
  registry.Replace({Make("m", 2)});
  EXPECT_EQ((*found)->version, 1);
  EXPECT_EQ(found->use_count(), 1);
  EXPECT_EQ((*registry.Find("m", 0))->version, 2);
  registry.Replace({});
  EXPECT_TRUE(registry.List().empty());
}

}  // namespace
}  // namespace sru::server::lifecycle
