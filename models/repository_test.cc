#include "models/repository.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/checked.h"
#include "tests/testing/poll.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::sru::testing::Checked;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Listed(const TempDirectory& directory, const VersionPolicy& policy) {
  auto locations = Checked(ListRepository(directory.path(), policy));
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
  EXPECT_THAT(Listed(directory, VersionPolicy::All()),
              ElementsAre("A.x_-1:1", "a:7", "b:2", "b:9", "b:10", "linked:7"));
  EXPECT_THAT(Listed(directory, VersionPolicy::Latest(1)),
              ElementsAre("A.x_-1:1", "a:7", "b:10", "linked:7"));
}

TEST(RepositoryTest, RefusesBadVersions) {
  for (const std::string version : {"0", "01", "-1", "+1", "v1", "1.0", "1 ", "9223372036854775808",
                                    "99999999999999999999999"}) {
    TempDirectory directory;
    std::filesystem::create_directories(directory.path("m/" + version));
    const absl::Status status = ListRepository(directory.path(), VersionPolicy::Latest(1)).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << version;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'" + version + "' is not a version"));
  }
  TempDirectory directory;
  std::filesystem::create_directories(directory.path("m/9223372036854775807"));
  EXPECT_THAT(Listed(directory, VersionPolicy::All()), ElementsAre("m:9223372036854775807"));
}

TEST(RepositoryTest, RefusesBadNamesAndEmptyDirectories) {
  {
    TempDirectory directory;
    std::filesystem::create_directories(directory.path("my model/1"));
    const absl::Status status = ListRepository(directory.path(), VersionPolicy::All()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'my model' is not a model name"));
  }
  {
    TempDirectory directory;
    directory.Write("m/config.json", "{}");
    const absl::Status status = ListRepository(directory.path(), VersionPolicy::All()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("no version directory; expected <repository>/<model>/<version>/"));
  }
  {
    TempDirectory directory;
    const absl::Status status = ListRepository(directory.path(), VersionPolicy::All()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), HasSubstr("has no model"));
    EXPECT_EQ(ListRepository(directory.path("absent"), VersionPolicy::All()).status().code(),
              absl::StatusCode::kNotFound);
    EXPECT_EQ(ListRepository(directory.Write("file", ""), VersionPolicy::All()).status().code(),
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

TEST(RepositoryTest, VersionPolicies) {
  TempDirectory directory;
  for (const char* version : {"a/1", "a/3", "a/20", "b/3"}) {
    std::filesystem::create_directories(directory.path(version));
  }
  EXPECT_THAT(Listed(directory, VersionPolicy::Latest(2)), ElementsAre("a:3", "a:20", "b:3"));
  EXPECT_THAT(Listed(directory, VersionPolicy::Latest(9)),
              ElementsAre("a:1", "a:3", "a:20", "b:3"));
  EXPECT_THAT(Listed(directory, VersionPolicy::Named({3, 1, 7})), ElementsAre("a:1", "a:3", "b:3"));
  const absl::Status status =
      ListRepository(directory.path(), VersionPolicy::Named({1, 20})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/b: the model has none of the versions 1"));
}

TEST(RepositoryTest, ParsesVersionPolicies) {
  EXPECT_EQ(ParseVersionPolicy("all")->kind, VersionPolicy::Kind::kAll);
  EXPECT_EQ(ParseVersionPolicy("latest")->latest, 1);
  EXPECT_EQ(ParseVersionPolicy("latest:3")->latest, 3);
  EXPECT_THAT(ParseVersionPolicy("named:1,30")->named, ElementsAre(1, 30));
  for (const char* text : {"", "latest:", "latest:0", "latest:-1", "latest:x", "named:", "named:1,",
                           "named:01", "named:0", "named:1, 2", "ALL", "3", "latest:1,2"}) {
    const auto policy = ParseVersionPolicy(text);
    EXPECT_EQ(policy.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(policy.status().message()), HasSubstr("expected latest:N")) << text;
  }
}

TEST(RepositoryTest, AScanReportsProblemsAndGoesOn) {
  TempDirectory directory;
  for (const char* name : {"a/1", "a/2.bak", "bad name/1", "empty"}) {
    std::filesystem::create_directories(directory.path(name));
  }
  const auto listing = Checked(ScanRepository(directory.path()));
  EXPECT_EQ(listing->models.size(), 2u);
  EXPECT_EQ(listing->models.at("a").versions.size(), 1u);
  EXPECT_THAT(listing->models.at("a").problem, HasSubstr("'2.bak' is not a version"));
  EXPECT_TRUE(listing->models.at("empty").versions.empty());
  EXPECT_EQ(listing->models.at("empty").problem, "");
  ASSERT_EQ(listing->problems.size(), 1u);
  EXPECT_THAT(listing->problems[0], HasSubstr("'bad name' is not a model name"));
}

TEST(RepositoryTest, AScanOfOneModelCannotLeaveTheDirectory) {
  TempDirectory directory;
  std::filesystem::create_directories(directory.path("inside/m/1"));
  std::filesystem::create_directories(directory.path("outside/1"));
  const std::string repository = directory.path("inside");
  EXPECT_EQ(ScanModel(repository, "m")->versions.size(), 1u);
  EXPECT_EQ(ScanModel(repository, "n").status().code(), absl::StatusCode::kNotFound);
  for (const std::string& name :
       {std::string("../outside"), std::string("m/../../outside"), std::string(".."),
        std::string("."), std::string(), std::string("m\0", 2), directory.path("outside")}) {
    EXPECT_EQ(ScanModel(repository, name).status().code(), absl::StatusCode::kInvalidArgument)
        << name;
  }
}

TEST(RepositoryTest, LinksThatLeadOutAreRefusedUnlessTheyAreAllowed) {
  TempDirectory directory;
  WriteSmallModel(directory, "store/7");
  const std::string repository = directory.path("repository");
  std::filesystem::create_directories(repository + "/m");
  // As a ConfigMap has it, and as a store beside the repository does.
  WriteSmallModel(directory, "repository/inside/1/..2026_01_01");
  std::filesystem::create_symlink("..2026_01_01", repository + "/inside/1/..data");
  for (const char* file : {"config.json", "vocab.txt", "model.safetensors"}) {
    std::filesystem::create_symlink(std::string("..data/") + file,
                                    repository + "/inside/1/" + file);
  }
  std::filesystem::create_directory_symlink(directory.path("store/7"), repository + "/m/7");
  std::filesystem::create_directory_symlink("../store", repository + "/linked");

  const auto found = Checked(ScanRepository(repository));
  EXPECT_NE(FileSignature(found->models.at("inside").versions[0].path()), "");
  EXPECT_EQ(FileSignature(found->models.at("m").versions[0].path()), "");
  // Not even the names in the folder are shown.
  EXPECT_TRUE(found->models.at("linked").versions.empty());
  EXPECT_THAT(found->models.at("linked").problem, HasSubstr("expected links that stay"));
  EXPECT_EQ(ScanModel(repository, "linked").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(RepositoryTest, ANameThatIsTooLongIsNotRepeated) {
  TempDirectory directory;
  const absl::Status status =
      ScanModel(directory.path(""), std::string(kMaxModelNameBytes + 1, 'x')).status();
  EXPECT_EQ(status, absl::InvalidArgumentError("model: expected at most 128 bytes, found 129"));
  EXPECT_TRUE(CheckNameLength("model", std::string(kMaxModelNameBytes, 'x')).ok());
}

TEST(RepositoryTest, TheSignatureFollowsTheFiles) {
  TempDirectory directory;
  WriteSmallModel(directory, "m/1");
  const std::string version = directory.path("m/1");
  const std::string first = FileSignature(version);
  EXPECT_EQ(FileSignature(version), first);
  directory.Write("m/1/notes.txt", "no part of the model");
  EXPECT_EQ(FileSignature(version), first);

  // Same size and time, another file: renamed over it.
  const auto time = std::filesystem::last_write_time(directory.path("m/1/vocab.txt"));
  directory.Write("m/1/.new", kSmallVocabulary);
  std::filesystem::last_write_time(directory.path("m/1/.new"), time);
  std::filesystem::rename(directory.path("m/1/.new"), directory.path("m/1/vocab.txt"));
  const std::string renamed = FileSignature(version);
  EXPECT_NE(renamed, first);
  // Written in place, with the size it had.
  std::filesystem::last_write_time(directory.path("m/1/vocab.txt"), time + std::chrono::seconds(1));
  const std::string touched = FileSignature(version);
  EXPECT_NE(touched, renamed);
  std::filesystem::remove(directory.path("m/1/vocab.txt"));
  EXPECT_NE(FileSignature(version), touched);
  EXPECT_EQ(FileSignature(directory.path("m/2")), "");
}

// As `cp -p` and `rsync -t` write: nothing but the time of change is another.
TEST(RepositoryTest, TheSignatureFollowsFilesWhoseTimeIsSetBack) {
  TempDirectory directory;
  WriteSmallModel(directory, "m/1");
  const std::string version = directory.path("m/1");
  for (const char* name : {"config.json", "model.safetensors", "vocab.txt"}) {
    const std::string path = version + "/" + name;
    const std::string first = FileSignature(version);
    const auto time = std::filesystem::last_write_time(path);
    std::string contents = ReadWholeFile(path);
    contents.back() ^= 1;
    // The clock of a file system moves in ticks.
    EXPECT_TRUE(testing::PollUntil([&] {
      std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << contents;
      std::filesystem::last_write_time(path, time);
      return FileSignature(version) != first;
    })) << name;
  }
}

TEST(RepositoryTest, TheDigestFollowsTheContentsAlone) {
  TempDirectory directory;
  WriteSmallModel(directory, "m/1");
  WriteSmallModel(directory, "m/2");
  const std::string version = directory.path("m/1");
  const std::string first = FileContentsDigest(version);
  EXPECT_NE(first, "");
  EXPECT_EQ(FileContentsDigest(directory.path("m/2")), first);
  directory.Write("m/1/notes.txt", "no part of the model");
  EXPECT_EQ(FileContentsDigest(version), first);
  for (const char* name : {"config.json", "model.safetensors", "vocab.txt"}) {
    const std::string path = version + "/" + name;
    std::string contents = ReadWholeFile(path);
    contents.back() ^= 1;
    directory.Write(std::string("m/1/") + name, contents);
    EXPECT_NE(FileContentsDigest(version), first) << name;
    contents.back() ^= 1;
    directory.Write(std::string("m/1/") + name, contents);
    EXPECT_EQ(FileContentsDigest(version), first) << name;
  }
  std::filesystem::rename(version + "/vocab.txt", version + "/piece.model");
  EXPECT_NE(FileContentsDigest(version), first);
  std::filesystem::remove(version + "/config.json");
  std::filesystem::create_directory(version + "/config.json");
  EXPECT_EQ(FileContentsDigest(version), "");  // it cannot be read
}

TEST(RepositoryTest, TheSignatureFollowsWhatSaysTheLanguagesOfPublishedFiles) {
  TempDirectory directory;
  directory.Write("m/1/model.npz", "weights");
  directory.Write("m/1/vocab.spm", "pieces");
  const std::string version = directory.path("m/1");
  const std::string first = FileSignature(version);
  EXPECT_NE(first.find("model.npz"), std::string::npos);
  directory.Write("m/1/model_info.json", "{}");
  EXPECT_NE(FileSignature(version), first);
}

}  // namespace
}  // namespace sru::models
