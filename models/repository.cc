#include "models/repository.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "kernels/enum_names.h"
#include "models/digest.h"
#include "models/marian/published_files.h"
#include "models/text/tokenizer.h"

namespace sru::models {
namespace {

namespace fs = std::filesystem;

constexpr char kLayout[] = "expected <repository>/<model>/<version>/config.json";

// Names of the directories in `directory` (links to directories too), sorted.
absl::StatusOr<std::vector<std::string>> ListDirectories(const FilePath& directory) {
  std::vector<std::string> names;
  const int fd = directory.Open(O_RDONLY | O_DIRECTORY);
  if (fd < 0 && errno == EXDEV) return OpenError(directory, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(fd < 0 ? nullptr : fdopendir(fd), closedir);
  if (listed == nullptr) {
    const std::error_code error(errno, std::generic_category());
    if (fd >= 0) close(fd);
    const std::string message =
        absl::StrCat(directory.path(), ": cannot be listed: ", error.message(), "; ", kLayout);
    return error == std::errc::no_such_file_or_directory ? absl::NotFoundError(message)
                                                         : absl::InvalidArgumentError(message);
  }
  for (;;) {
    errno = 0;
    const dirent* const entry = readdir(listed.get());
    if (entry == nullptr && errno != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory.path(), ": cannot be listed: ", std::generic_category().message(errno)));
    }
    if (entry == nullptr) break;
    const std::string name = entry->d_name;
    // A file system's own directory appears in the root of a mounted volume.
    if (name[0] == '.' || name == "lost+found") continue;
    struct stat info;  // a dangling link is no directory
    if (fstatat(fd, entry->d_name, &info, 0) == 0 && S_ISDIR(info.st_mode)) names.push_back(name);
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

absl::StatusOr<ModelListing> ListVersions(const std::string& repository, const std::string& name) {
  const fs::path directory = fs::path(repository) / name;
  SRU_ASSIGN_OR_RETURN(std::vector<std::string> entries,
                       ListDirectories(FilePath(directory.string(), repository)));
  ModelListing listing;
  for (const std::string& entry : entries) {
    const int64_t version = ParseVersion(entry);
    if (version != 0) {
      listing.versions.push_back({name, version, (directory / entry).string(), repository});
    } else if (listing.problem.empty()) {
      listing.problem = absl::StrCat(
          directory.string(), ": '", entry,
          "' is not a version: expected a positive integer without leading zeros; ", kLayout);
    }
  }
  std::sort(listing.versions.begin(), listing.versions.end(),
            [](const auto& a, const auto& b) { return a.version < b.version; });
  return listing;
}

// The files of the version in `directory` that FORMAT.md names, there or not. `*problem` says how
// they are ambiguous: if they are, removing one makes the folder another student.
std::vector<std::string> NamesOfFiles(const FilePath& directory, std::string* problem) {
  std::vector<std::string> names = {"config.json", "model.safetensors"};
  for (const TokenizerType type : kernels::AllNamed<TokenizerTypeName>()) {
    const char* const file = Describe(type).file;
    if (*file != '\0' && names.back() != file) names.emplace_back(file);
  }
  const absl::StatusOr<std::optional<PublishedFiles>> published = FindPublishedFiles(directory);
  if (!published.ok()) *problem = std::string(published.status().message());
  if (published.ok() && published->has_value()) {
    for (std::string& file : (*published)->names()) names.push_back(std::move(file));
    names.emplace_back("model_info.json");  // may say its languages
  }
  return names;
}

}  // namespace

bool IsValidModelName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxModelNameBytes && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' ||
                  c == '-';
         });
}

absl::Status CheckNameLength(absl::string_view field, absl::string_view name) {
  if (name.size() <= kMaxModelNameBytes) return absl::OkStatus();
  return InvalidArgument(field, ": expected at most ", kMaxModelNameBytes, " bytes, found ",
                         name.size());
}

absl::StatusOr<VersionPolicy> ParseVersionPolicy(absl::string_view text) {
  const auto error = [text] {
    return InvalidArgument(
        "expected latest:N with N from 1, all, or named:A,B with version numbers, "
        "found '",
        text, "'");
  };
  if (text == "all") return VersionPolicy::All();
  if (text == "latest") return VersionPolicy::Latest(1);
  if (absl::ConsumePrefix(&text, "latest:")) {
    int count = 0;
    if (!absl::SimpleAtoi(text, &count) || count < 1) return error();
    return VersionPolicy::Latest(count);
  }
  if (!absl::ConsumePrefix(&text, "named:")) return error();
  std::vector<int64_t> versions;
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(text, ','))) {
    const int64_t version = part.empty() ? 0 : ParseVersion(part);
    if (version == 0) return error();
    versions.push_back(version);
  }
  return VersionPolicy::Named(std::move(versions));
}

absl::StatusOr<RepositoryListing> ScanRepository(const std::string& repository) {
  SRU_ASSIGN_OR_RETURN(std::vector<std::string> names, ListDirectories(repository));
  RepositoryListing listing;
  for (const std::string& name : names) {
    if (!IsValidModelName(name)) {
      listing.problems.push_back(absl::StrCat(repository, ": '", name,
                                              "' is not a model name: expected 1 to ",
                                              kMaxModelNameBytes, " of A-Z a-z 0-9 _ . -"));
      continue;
    }
    absl::StatusOr<ModelListing> model = ListVersions(repository, name);
    if (model.ok()) {
      listing.models[name] = *std::move(model);
    } else if (!absl::IsNotFound(model.status())) {  // else it went away in this moment
      listing.models[name] = {{}, std::string(model.status().message()), /*is_listed=*/false};
    }
  }
  return listing;
}

absl::StatusOr<ModelListing> ScanModel(const std::string& repository, const std::string& name) {
  SRU_RETURN_UNLESS_OK(CheckNameLength("model", name));
  if (!IsValidModelName(name)) {
    return InvalidArgument("model: '", absl::CHexEscape(name),
                           "' is not a model name: expected 1 to ", kMaxModelNameBytes,
                           " of A-Z a-z 0-9 _ . - that do not start with a dot");
  }
  const fs::path directory = fs::path(repository) / name;
  std::error_code error;
  if (!fs::is_directory(directory, error)) {
    return absl::NotFoundError(absl::StrCat("model: the repository has no model '", name,
                                            "': ", directory.string(), " is not a directory"));
  }
  return ListVersions(repository, name);
}

std::vector<ModelLocation> SelectVersions(const VersionPolicy& policy,
                                          const std::vector<ModelLocation>& versions) {
  switch (policy.kind) {
    case VersionPolicy::Kind::kAll:
      return versions;
    case VersionPolicy::Kind::kLatest: {
      const size_t count = std::min<size_t>(versions.size(), std::max(policy.latest, 0));
      return {versions.end() - static_cast<std::ptrdiff_t>(count), versions.end()};
    }
    case VersionPolicy::Kind::kNamed:
      break;
  }
  std::vector<ModelLocation> selected;
  for (const ModelLocation& location : versions) {
    const auto& named = policy.named;
    if (std::count(named.begin(), named.end(), location.version) > 0) selected.push_back(location);
  }
  return selected;
}

absl::StatusOr<std::vector<ModelLocation>> ListRepository(const std::string& repository,
                                                          const VersionPolicy& policy) {
  SRU_ASSIGN_OR_RETURN(RepositoryListing listing, ScanRepository(repository));
  if (!listing.problems.empty()) return absl::InvalidArgumentError(listing.problems.front());
  std::vector<ModelLocation> locations;
  for (const auto& [name, model] : listing.models) {
    const std::string directory = (fs::path(repository) / name).string();
    if (!model.problem.empty()) return absl::InvalidArgumentError(model.problem);
    if (model.versions.empty()) {
      return InvalidArgument(directory, ": the model has no version directory; ", kLayout);
    }
    std::vector<ModelLocation> selected = SelectVersions(policy, model.versions);
    if (selected.empty()) {
      return InvalidArgument(directory, ": the model has none of the versions ",
                             absl::StrJoin(policy.named, ", "));
    }
    std::move(selected.begin(), selected.end(), std::back_inserter(locations));
  }
  if (locations.empty()) {
    return absl::NotFoundError(absl::StrCat(repository, ": has no model; ", kLayout));
  }
  return locations;
}  // namespace sru::models

std::string FileSignature(const FilePath& directory) {
  std::string signature;
  for (const std::string& name : NamesOfFiles(directory, &signature)) {
    const int fd = (directory / name).Open(O_PATH);
    if (fd < 0) continue;
    struct stat info;
    const bool known = fstat(fd, &info) == 0;
    close(fd);
    if (!known) continue;
    absl::StrAppend(&signature, "\n", name, " ", info.st_size, " ", info.st_mtim.tv_sec, ".",
                    info.st_mtim.tv_nsec, " ", info.st_ctim.tv_sec, ".", info.st_ctim.tv_nsec, " ",
                    info.st_dev, ":", info.st_ino);
  }
  return signature;
}

std::string FileContentsDigest(const FilePath& directory) {
  std::string digest;
  for (const std::string& name : NamesOfFiles(directory, &digest)) {
    const absl::StatusOr<OpenFile> file = OpenFile::Open(directory / name);
    if (absl::IsNotFound(file.status())) continue;
    const absl::StatusOr<std::string> contents =
        file.ok() ? DigestOfFile(*file) : absl::StatusOr<std::string>(file.status());
    if (!contents.ok()) return "";
    absl::StrAppend(&digest, "\n", name, " ", *contents);
  }
  return digest;
}

}  // namespace sru::models
