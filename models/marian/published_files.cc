#include "models/marian/published_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
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
#include "models/marian/yaml.h"

namespace sru::models {
namespace {

constexpr uint64_t kMaxNamingFileBytes = 64 << 10;

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

// Without ".gz".
absl::string_view Plain(absl::string_view name) { return absl::StripSuffix(name, kGzipSuffix); }

// The names that begin and end so, a gzip'd file only if there is no other of its name.
std::vector<std::string> Matching(const std::set<std::string>& names, absl::string_view prefix,
                                  absl::string_view suffix) {
  std::vector<std::string> matching;
  for (const std::string& name : names) {
    const absl::string_view plain = Plain(name);
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

// The values of a key in a file of YAML, without folders. JSON is YAML, too.
absl::StatusOr<std::vector<std::string>> ValuesIn(const FilePath& path, const char* key) {
  SRU_ASSIGN_OR_RETURN(const FileContents file, ReadPerhapsGzipped(path, kMaxNamingFileBytes));
  SRU_ASSIGN_OR_RETURN(YamlMap map, YamlMap::Parse(file.bytes(), path.path()));
  std::vector<std::string> values = map.List(key);
  for (std::string& value : values) value.erase(0, value.rfind('/') + 1);
  return values;
}

// The parts of a name between its dots, without ".gz".
std::vector<std::string> PartsOf(absl::string_view name) {
  return absl::StrSplit(Plain(name), '.');
}

// Says if `name` tells that one vocabulary is the source's and the other the target's, as
// model.deen.bin does of vocab.de.spm and vocab.en.spm.
bool TellsDirection(const std::string& name, const std::string& source, const std::string& target) {
  const std::vector<std::string> parts = PartsOf(name);
  return std::count(parts.begin(), parts.end(), PartsOf(source)[1] + PartsOf(target)[1]) != 0;
}

// The source's vocabulary and the target's, by their own names (vocab.src.spm and vocab.trg.spm),
// else by that of the weights, else by those of the shortlists. Empty: they do not tell, or each
// tells something else.
std::vector<std::string> InDirection(const std::vector<std::string>& two,
                                     const std::set<std::string>& names,
                                     const std::string& weights) {
  const auto is_source = [](const std::string& name) {
    const std::string part = PartsOf(name)[1];
    return absl::StartsWith(part, "src") || absl::StartsWith(part, "source");
  };
  const auto is_target = [](const std::string& name) {
    const std::string part = PartsOf(name)[1];
    return absl::StartsWith(part, "trg") || absl::StartsWith(part, "tgt") ||
           absl::StartsWith(part, "target");
  };
  const auto any_tells = [&](absl::string_view prefix, size_t source) {
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return absl::StartsWith(name, prefix) && TellsDirection(name, two[source], two[1 - source]);
    });
  };
  const std::pair<bool, bool> tellers[] = {
      {is_source(two[0]) && is_target(two[1]), is_source(two[1]) && is_target(two[0])},
      {TellsDirection(weights, two[0], two[1]), TellsDirection(weights, two[1], two[0])},
      {any_tells("lex", 0), any_tells("lex", 1)}};
  for (const auto& [as_they_are, swapped] : tellers) {
    if (as_they_are != swapped) return swapped ? std::vector{two[1], two[0]} : two;
  }
  return {};
}

// The only file that begins and ends so. If there are several, the `count` of them that the search
// file's key names, in its order; two that it does not name are ordered by what their names tell.
absl::StatusOr<std::vector<std::string>> Only(const FilePath& directory,
                                              const std::set<std::string>& names,
                                              const std::string& prefix, const char* suffix,
                                              const PublishedFiles& files, const char* key,
                                              size_t count = 1) {
  std::vector<std::string> found = Matching(names, prefix, suffix);
  if (found.size() <= 1) return found;
  std::vector<std::string> named;
  if (!files.search.empty()) {
    SRU_ASSIGN_OR_RETURN(const std::vector<std::string> values,
                         ValuesIn(directory / files.search, key));
    for (const absl::string_view value : values) {
      for (const std::string& name : found) {
        if (Plain(name) == Plain(value)) named.push_back(name);
      }
    }
  }
  if (named.empty() && found.size() == 2 && count == 2) {
    named = InDirection(found, names, files.weights);
  }
  if (named.size() != count) return Ambiguous(directory, (prefix + "*" + suffix).c_str(), found);
  return named;
}

absl::Status FindVocabularies(const FilePath& directory, const std::set<std::string>& names,
                              PublishedFiles* files) {
  const auto find = [&](const char* prefix, size_t count) {
    return Only(directory, names, prefix, ".spm", *files, "vocabs", count);
  };
  SRU_ASSIGN_OR_RETURN(const std::vector<std::string> both, find("vocab", 2));
  SRU_ASSIGN_OR_RETURN(const std::vector<std::string> source, find("srcvocab", 1));
  SRU_ASSIGN_OR_RETURN(const std::vector<std::string> target, find("trgvocab", 1));
  const bool apart = !source.empty() && !target.empty();
  if (both.empty() == !apart || source.empty() != target.empty()) {
    return InvalidArgument(directory.path(),
                           ": expected vocab*.spm, or srcvocab*.spm and trgvocab*.spm, beside ",
                           Quoted(files->weights), ", found ",
                           both.empty() && source.empty() && target.empty() ? "none" : "others");
  }
  files->source_vocabulary = (apart ? source : both).front();
  files->target_vocabulary = (apart ? target : both).back();
  return absl::OkStatus();
}

// The code of "de" or "zh_hant" as BCP 47 writes it: "zh-Hant". Empty if `name` has another form.
std::string LanguageIn(std::string name) {
  const size_t size = std::min(name.find('_'), name.size());
  const bool has_script = name.size() == size + 5;
  if (size < 2 || size > 3 || (size < name.size() && !has_script)) return "";
  if (has_script) name.erase(size, 1);
  if (!std::all_of(name.begin(), name.end(), absl::ascii_islower)) return "";
  if (!has_script) return name;
  name[size] = absl::ascii_toupper(name[size]);
  return name.insert(size, "-");
}

bool SetLanguages(const std::string& source, const std::string& target, PublishedFiles* files) {
  if (LanguageIn(source).empty() || LanguageIn(target).empty()) return false;
  files->source_language = LanguageIn(source);
  files->target_language = LanguageIn(target);
  return true;
}

// Sets the languages that a part of `name` says: "ende", "zh_hanten". Four letters without English,
// as "defr", may be a word. They count if a vocabulary has the same languages in its name, in
// either order.
bool FindLanguages(const std::string& name, PublishedFiles* files) {
  const std::vector<std::string> parts = PartsOf(name);
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    const std::string& part = parts[i];
    const bool begins = absl::StartsWith(part, "en");
    const bool ends = !begins && absl::EndsWith(part, "en");
    if (!begins && !ends && part.size() != 4) continue;
    const std::string source = part.substr(0, ends ? part.size() - 2 : 2);
    const std::string target = part.substr(source.size());
    const bool sure = begins || ends || absl::StrContains(files->source_vocabulary, part) ||
                      (absl::StrContains(files->source_vocabulary, "." + source + ".") &&
                       absl::StrContains(files->target_vocabulary, "." + target + ".")) ||
                      absl::StrContains(files->source_vocabulary, target + source);
    if (sure && SetLanguages(source, target, files)) return true;
  }
  return false;
}

// A shared vocabulary may serve both directions, so its name counts last. In Bergamot's folders
// only model_info.json tells the direction.
void FindLanguages(const FilePath& directory, PublishedFiles* files) {
  if (FindLanguages(files->weights, files) || FindLanguages(files->shortlist, files)) return;
  if (files->shares_vocabulary()) {
    const auto name = ValuesIn(directory / "model_info.json", "shortName");  // "en-de-tiny"
    const std::vector<std::string> parts =
        absl::StrSplit(name.ok() ? absl::StrJoin(*name, "") : "", '-');
    if (parts.size() > 1 && SetLanguages(parts[0], parts[1], files)) return;
    if (absl::StartsWith(files->weights, "model.intgemm")) return;
  }
  FindLanguages(files->source_vocabulary, files);
}

// The file of weights that decoder.yml or config*.yml names, if it is one of `weights`; empty: none
// does. That these files can be read is checked where their values are needed.
std::string NamedWeights(const FilePath& directory, const std::set<std::string>& names,
                         const std::vector<std::string>& weights) {
  std::vector<std::string> searches = Matching(names, "decoder", ".yml");
  for (std::string& name : Matching(names, "config", ".yml")) searches.push_back(std::move(name));
  if (searches.empty()) return "";
  const auto values = ValuesIn(directory / searches.front(), "models");
  if (!values.ok() || values->size() != 1) return "";
  for (const std::string& name : weights) {
    if (Plain(name) == Plain((*values)[0])) return name;
  }
  return "";
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
    const auto trained = std::find_if(weights.begin(), weights.end(), [](const std::string& name) {
      return Plain(name) == "model.npz";
    });
    const std::string named = NamedWeights(directory, names, weights);
    if (!named.empty()) {
      weights = {named};
    } else if (trained != weights.end()) {
      weights = {*trained};
    } else if (rounded.size() == 1) {
      weights = rounded;
    } else {
      return Ambiguous(directory, "file of weights, model*.npz or model*.bin", weights);
    }
  }
  files.weights = weights.front();
  const std::vector<std::string> configs = Matching(names, "config", ".yml");
  // Names without ".gz": Matching() finds both.
  for (const std::string& name :
       {absl::StrCat(Plain(files.weights), ".decoder.yml"), std::string("decoder.yml"),
        std::string(configs.empty() ? "" : Plain(configs.front()))}) {
    const std::vector<std::string> found = Matching(names, name, ".yml");
    if (name.empty() || found.empty() || !files.search.empty()) continue;
    files.search = found.front();
  }
  SRU_RETURN_UNLESS_OK(FindVocabularies(directory, names, &files));
  SRU_ASSIGN_OR_RETURN(const std::vector<std::string> shortlists,
                       Only(directory, names, "lex", ".bin", files, "shortlist"));
  if (!shortlists.empty()) files.shortlist = shortlists.front();
  FindLanguages(directory, &files);
  return files;
}

}  // namespace sru::models
