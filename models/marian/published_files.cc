#include "models/marian/published_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "models/files/gzip.h"
#include "models/files/json.h"

namespace sru::models {
namespace {

// Sorted; empty if the folder cannot be listed.
std::set<std::string> NamesIn(const FilePath& directory) {
  std::set<std::string> names;
  const int fd = directory.Open(O_RDONLY | O_DIRECTORY);
  const std::unique_ptr<DIR, int (*)(DIR*)> listed(fd < 0 ? nullptr : fdopendir(fd), closedir);
  if (listed == nullptr && fd >= 0) close(fd);
  while (listed != nullptr) {
    const dirent* const entry = readdir(listed.get());
    if (entry == nullptr) break;
    names.insert(entry->d_name);
  }
  return names;
}

// The names that begin and end so, a gzip'd file only if there is no other of its name.
std::vector<std::string> Matching(const std::set<std::string>& names, absl::string_view prefix,
                                  absl::string_view suffix) {
  std::vector<std::string> matching;
  for (const std::string& name : names) {
    const absl::string_view plain = absl::StripSuffix(name, kGzipSuffix);
    if (!absl::StartsWith(plain, prefix) || !absl::EndsWith(plain, suffix)) continue;
    if (plain.size() < name.size() && names.count(std::string(plain)) != 0) continue;
    matching.push_back(name);
  }
  return matching;
}

absl::Status Ambiguous(const FilePath& directory, const char* what,
                       const std::vector<std::string>& names) {
  return InvalidArgument(directory.path(), ": expected one ", what, ", found ",
                         absl::StrJoin(names, ", ", [](std::string* out, const std::string& name) {
                           absl::StrAppend(out, Quoted(name));
                         }));
}

// The only file that begins and ends so.
absl::StatusOr<std::string> Only(const FilePath& directory, const std::set<std::string>& names,
                                 const char* prefix, const char* suffix) {
  std::vector<std::string> found = Matching(names, prefix, suffix);
  if (found.size() > 1)
    return Ambiguous(directory, absl::StrCat(prefix, "*", suffix).c_str(), found);
  return found.empty() ? std::string() : std::move(found.front());
}

absl::Status FindVocabularies(const FilePath& directory, const std::set<std::string>& names,
                              PublishedFiles* files) {
  SRU_ASSIGN_OR_RETURN(std::string shared, Only(directory, names, "vocab", ".spm"));
  SRU_ASSIGN_OR_RETURN(std::string source, Only(directory, names, "srcvocab", ".spm"));
  SRU_ASSIGN_OR_RETURN(std::string target, Only(directory, names, "trgvocab", ".spm"));
  const bool apart = !source.empty() && !target.empty();
  if (shared.empty() == !apart || source.empty() != target.empty()) {
    return InvalidArgument(directory.path(),
                           ": expected vocab*.spm, or srcvocab*.spm and trgvocab*.spm, beside ",
                           Quoted(files->weights), ", found ",
                           shared.empty() && source.empty() && target.empty() ? "none" : "others");
  }
  files->source_vocabulary = apart ? std::move(source) : shared;
  files->target_vocabulary = apart ? std::move(target) : std::move(shared);
  return absl::OkStatus();
}

// The part of Firefox's names with both languages: "ende".
std::string LanguagesOf(absl::string_view name) {
  const std::vector<std::string> parts = absl::StrSplit(name, '.');
  if (parts.size() < 3 || parts[1].size() != 4) return "";
  return std::all_of(parts[1].begin(), parts[1].end(), absl::ascii_islower) ? parts[1] : "";
}

}  // namespace

std::vector<std::string> PublishedFiles::names() const {
  std::vector<std::string> names = {weights, source_vocabulary};
  if (!shares_vocabulary()) names.push_back(target_vocabulary);
  if (!shortlist.empty()) names.push_back(shortlist);
  if (!search.empty()) names.push_back(search);
  return names;
}

absl::StatusOr<std::optional<PublishedFiles>> FindPublishedFiles(const FilePath& directory) {
  const std::set<std::string> names = NamesIn(directory);
  std::vector<std::string> weights = Matching(names, "model", ".npz");
  for (std::string& name : Matching(names, "model", ".bin")) weights.push_back(std::move(name));
  if (weights.empty()) return std::nullopt;
  PublishedFiles files;
  if (weights.size() > 1) {
    const std::vector<std::string> rounded = Matching(names, "model", ".alphas.bin");
    if (names.count("model.npz") != 0) {
      weights = {"model.npz"};
    } else if (rounded.size() == 1) {
      weights = rounded;
    } else {
      return Ambiguous(directory, "file of weights, model*.npz or model*.bin", weights);
    }
  }
  files.weights = weights.front();
  SRU_RETURN_UNLESS_OK(FindVocabularies(directory, names, &files));
  SRU_ASSIGN_OR_RETURN(files.shortlist, Only(directory, names, "lex", ".bin"));
  const std::vector<std::string> configs = Matching(names, "config", ".yml");
  for (const std::string& name :
       {absl::StrCat(files.weights, ".decoder.yml"), std::string("decoder.yml"),
        configs.empty() ? std::string() : configs.front()}) {
    const std::vector<std::string> found = Matching(names, name, ".yml");
    if (name.empty() || found.empty() || !files.search.empty()) continue;
    files.search = found.front();
  }
  const std::string languages = LanguagesOf(files.source_vocabulary);
  const std::string of_weights = LanguagesOf(files.weights);
  if (!languages.empty() && (of_weights.empty() || of_weights == languages)) {
    files.source_language = languages.substr(0, 2);
    files.target_language = languages.substr(2);
  }
  return files;
}

}  // namespace sru::models
