#include "models/repository.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace sru::models {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxNameBytes = 128;
constexpr char kLayout[] = "expected <repository>/<model>/<version>/config.json";

// Names of the directories in `directory` (links to directories too), sorted.
absl::StatusOr<std::vector<std::string>> ListDirectories(const fs::path& directory) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(directory, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::string name = it->path().filename().string();
    // A file system's own directory appears in the root of a mounted volume.
    if (name[0] == '.' || name == "lost+found") continue;
    std::error_code ignored;  // a dangling link is no directory
    if (it->is_directory(ignored)) names.push_back(std::move(name));
  }
  if (error) {
    const std::string message =
        absl::StrCat(directory.string(), ": cannot be listed: ", error.message(), "; ", kLayout);
    return error == std::errc::no_such_file_or_directory ? absl::NotFoundError(message)
                                                         : absl::InvalidArgumentError(message);
  }
  std::sort(names.begin(), names.end());
  return names;
}

// 0 when `name` is not a positive integer in its shortest form.
int64_t ParseVersion(const std::string& name) {
  int64_t version = 0;
  if (!std::all_of(name.begin(), name.end(), absl::ascii_isdigit) || name[0] == '0' ||
      !absl::SimpleAtoi(name, &version)) {
    return 0;
  }
  return version;
}

// The versions of one model, ascending.
absl::StatusOr<std::vector<ModelLocation>> ListVersions(const fs::path& directory,
                                                        const std::string& name) {
  absl::StatusOr<std::vector<std::string>> entries = ListDirectories(directory);
  if (!entries.ok()) return entries.status();
  std::vector<ModelLocation> versions;
  for (const std::string& entry : *entries) {
    const int64_t version = ParseVersion(entry);
    if (version == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory.string(), ": '", entry,
          "' is not a version: expected a positive integer without leading zeros; ", kLayout));
    }
    versions.push_back({name, version, (directory / entry).string()});
  }
  if (versions.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory.string(), ": the model has no version directory; ", kLayout));
  }
  std::sort(versions.begin(), versions.end(),
            [](const auto& a, const auto& b) { return a.version < b.version; });
  return versions;
}

}  // namespace

bool IsValidModelName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
                  c == '-';
         });
}

absl::StatusOr<std::vector<ModelLocation>> ListRepository(const std::string& repository,
                                                          VersionPolicy policy) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectories(repository);
  if (!names.ok()) return names.status();
  std::vector<ModelLocation> locations;
  for (const std::string& name : *names) {
    if (!IsValidModelName(name)) {
      return absl::InvalidArgumentError(absl::StrCat(repository, ": '", name,
                                                     "' is not a model name: expected 1 to ",
                                                     kMaxNameBytes, " of A-Z a-z 0-9 _ . -"));
    }
    absl::StatusOr<std::vector<ModelLocation>> versions =
        ListVersions(fs::path(repository) / name, name);
    if (!versions.ok()) return versions.status();
    const auto first =
        policy == VersionPolicy::kLatest ? std::prev(versions->end()) : versions->begin();
    std::move(first, versions->end(), std::back_inserter(locations));
  }
  if (locations.empty()) {
    return absl::NotFoundError(absl::StrCat(repository, ": has no model; ", kLayout));
  }
  return locations;
}

absl::StatusOr<std::vector<std::shared_ptr<const Model>>> LoadRepository(
    const std::string& repository, VersionPolicy policy, kernels::Backend& backend,
    const kernels::CompileOptions& options) {
  absl::StatusOr<std::vector<ModelLocation>> locations = ListRepository(repository, policy);
  if (!locations.ok()) return locations.status();
  std::vector<std::shared_ptr<const Model>> models;
  for (const ModelLocation& location : *locations) {
    absl::StatusOr<std::shared_ptr<const Model>> model =
        Model::Load(location.directory, location.name, location.version, backend, options);
    if (!model.ok()) return model.status();
    models.push_back(*std::move(model));
  }
  return models;
}

}  // namespace sru::models
