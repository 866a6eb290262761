// The model repository: <repository>/<model>/<version>/ (FORMAT.md).
//
// <model> is one to 128 of A-Z a-z 0-9 _ . - and does not start with a dot; <version> is a positive
// integer without leading zeros. Hidden entries, plain files beside the directories and
// "lost+found" are ignored; any other directory is an error, so that a typing error never hides a
// model.
#ifndef SRU_MODELS_REPOSITORY_H_
#define SRU_MODELS_REPOSITORY_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/files/file.h"

namespace sru::models {

// Which versions of each model are served.
struct VersionPolicy {
  enum class Kind {
    kLatest,  // the `latest` highest
    kAll,
    kNamed,  // those in `named` that a model has
  };
  Kind kind = Kind::kLatest;
  int latest = 1;
  std::vector<int64_t> named;

  static VersionPolicy Latest(int count) { return {Kind::kLatest, count, {}}; }
  static VersionPolicy All() { return {Kind::kAll, 1, {}}; }
  static VersionPolicy Named(std::vector<int64_t> versions) {
    return {Kind::kNamed, 1, std::move(versions)};
  }
};

// Takes "latest:N", "latest" (one), "all" and "named:1,3". kInvalidArgument says what was expected.
absl::StatusOr<VersionPolicy> ParseVersionPolicy(absl::string_view text);

struct ModelLocation {
  std::string name;
  int64_t version = 0;
  std::string directory;
  // The folder that links in it must not lead out of; empty: they lead anywhere.
  std::string root;

  FilePath path() const { return {directory, root}; }
};

// What one look at a model's directory found.
struct ModelListing {
  std::vector<ModelLocation> versions;  // every one, ascending
  std::string problem;                  // a directory that is no version; empty when there is none
  bool is_listed = true;  // else nothing is known of the versions, and `problem` says why
};

// What one look at the repository found.
struct RepositoryListing {
  std::map<std::string, ModelListing> models;  // also those without a version
  std::vector<std::string> problems;           // directories that are no models
};

inline constexpr size_t kMaxModelNameBytes = 128;
bool IsValidModelName(std::string_view name);
// kInvalidArgument if a name is longer than any model's. It names `field` and does not repeat the
// name.
absl::Status CheckNameLength(absl::string_view field, absl::string_view name);

// Looks without judging: the error is about the repository itself, kNotFound when it is absent.
absl::StatusOr<RepositoryListing> ScanRepository(const std::string& repository);

// The same of one model. kInvalidArgument when `name` is not a model's name, before any file is
// looked at; kNotFound when the repository has no such model.
absl::StatusOr<ModelListing> ScanModel(const std::string& repository, const std::string& name);

// Those of `versions` (ascending, of one model) that the policy names.
std::vector<ModelLocation> SelectVersions(const VersionPolicy& policy,
                                          const std::vector<ModelLocation>& versions);

// What there is to load, sorted by name, then version. At least one. kNotFound when the repository
// is absent or has no model, kInvalidArgument for a bad name, a bad version or a model without one
// that the policy names; the message says what was expected.
absl::StatusOr<std::vector<ModelLocation>> ListRepository(const std::string& repository,
                                                          const VersionPolicy& policy);

// Changes whenever a file of the version in `directory` is replaced, written to, removed or added:
// names, sizes, inodes and times of modification and of change of the files that FORMAT.md names.
// Nobody can set the time of change back. Files are not read: what is written within one tick of
// the file system's clock, or through a mapping, may leave no trace.
std::string FileSignature(const FilePath& directory);

// Equal for equal contents of those files, which are read (SHA-256: about a second per GB). Empty
// if one of them cannot be read.
std::string FileContentsDigest(const FilePath& directory);

}  // namespace sru::models

#endif  // SRU_MODELS_REPOSITORY_H_
