#include "server/lifecycle/model_registry.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server {
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
  registry.Replace({Make("b", 2), Make("a", 1)});
  EXPECT_THAT(Error(registry, "", 0, absl::StatusCode::kInvalidArgument), HasSubstr("a, b"));
  EXPECT_EQ(registry.List()[0]->name, "a");
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
}  // namespace sru::server
