#include "models/repository.h"

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/test_files.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Listed(const TempDirectory& directory, VersionPolicy policy) {
  auto locations = ListRepository(directory.path(), policy);
  EXPECT_TRUE(locations.ok()) << locations.status();
  std::vector<std::string> names;
  if (!locations.ok()) return names;
  for (const ModelLocation& location : *locations) {
    names.push_back(location.name + ":" + std::to_string(location.version));
    EXPECT_TRUE(std::filesystem::is_directory(location.directory)) << location.directory;
  }
  return names;
}

TEST(RepositoryTest, ListsModelsSorted) {
  TempDirectory directory;
  for (const char* version : {"b/2", "b/10", "b/9", "A.x_-1/1", "a/7"}) {
    std::filesystem::create_directories(directory.path(version));
  }
  directory.Write("README.md", "ignored");
  directory.Write("a/notes.txt", "ignored");
  directory.Write(".git/config", "ignored");
  directory.Write("a/.tmp-8/config.json", "ignored");
  std::filesystem::create_directories(directory.path("lost+found"));
  std::filesystem::create_directory_symlink("a", directory.path("linked"));
  std::filesystem::create_directory_symlink("nowhere", directory.path("dangling"));
  EXPECT_THAT(Listed(directory, VersionPolicy::kAll),
              ElementsAre("A.x_-1:1", "a:7", "b:2", "b:9", "b:10", "linked:7"));
  EXPECT_THAT(Listed(directory, VersionPolicy::kLatest),
              ElementsAre("A.x_-1:1", "a:7", "b:10", "linked:7"));
}

TEST(RepositoryTest, RefusesBadVersions) {
  for (const std::string version : {"0", "01", "-1", "+1", "v1", "1.0", "1 ", "9223372036854775808",
                                    "99999999999999999999999"}) {
    TempDirectory directory;
    std::filesystem::create_directories(directory.path("m/" + version));
    const absl::Status status = ListRepository(directory.path(), VersionPolicy::kLatest).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << version;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + version + "' is not a version"));
  }
  TempDirectory directory;
  std::filesystem::create_directories(directory.path("m/9223372036854775807"));
  EXPECT_THAT(Listed(directory, VersionPolicy::kAll), ElementsAre("m:9223372036854775807"));
}

TEST(RepositoryTest, RefusesBadNamesAndEmptyDirectories) {
  {
    TempDirectory directory;
    std::filesystem::create_directories(directory.path("my model/1"));
    const absl::Status status = ListRepository(directory.path(), VersionPolicy::kAll).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'my model' is not a model name"));
  }
  {
    TempDirectory directory;
    directory.Write("m/config.json", "{}");
    const absl::Status status = ListRepository(directory.path(), VersionPolicy::kAll).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no version directory; expected <repository>/<model>/<version>/"));
  }
  {
    TempDirectory directory;
    const absl::Status status = ListRepository(directory.path(), VersionPolicy::kAll).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has no model"));
    EXPECT_EQ(ListRepository(directory.path("absent"), VersionPolicy::kAll).status().code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(ListRepository(directory.Write("file", ""), VersionPolicy::kAll).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(RepositoryTest, NamesCannotLeaveTheDirectory) {
  for (const char* name : {"trec", "A-z_0.9", "a..b"}) EXPECT_TRUE(IsValidModelName(name)) << name;
  EXPECT_TRUE(IsValidModelName(std::string(128, 'x')));
  for (const char* name : {"", ".", "..", ".hidden", "a/b", "../a", "a b", "caf\u00e9", "a\n"}) {
    EXPECT_FALSE(IsValidModelName(name)) << name;
  }
  EXPECT_FALSE(IsValidModelName(std::string(129, 'x')));
  EXPECT_FALSE(IsValidModelName(std::string_view("a\0b", 3)));
}

TEST(RepositoryTest, LoadsModels) {
  TempDirectory directory;
  WriteSmallModel(directory, "b/1");
  WriteSmallModel(directory, "b/2");
  WriteSmallModel(directory, "a/3");
  std::unique_ptr<kernels::Backend> backend;
  ASSERT_TRUE(kernels::CreateBackend("reference", &backend).ok());
  auto models = LoadRepository(directory.path(), VersionPolicy::kLatest, *backend, {});
  ASSERT_TRUE(models.ok()) << models.status();
  ASSERT_EQ(models->size(), 2u);
  EXPECT_EQ((*models)[0]->name(), "a");
  EXPECT_EQ((*models)[0]->version(), 3);
  EXPECT_EQ((*models)[1]->name(), "b");
  EXPECT_EQ((*models)[1]->version(), 2);
  models = LoadRepository(directory.path(), VersionPolicy::kAll, *backend, {});
  ASSERT_TRUE(models.ok()) << models.status();
  EXPECT_EQ(models->size(), 3u);

  std::filesystem::remove(directory.path("b/2/vocab.txt"));
  const absl::Status status =
      LoadRepository(directory.path(), VersionPolicy::kLatest, *backend, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("b/2/vocab.txt: cannot be opened"));
}

}  // namespace
}  // namespace sru::models
