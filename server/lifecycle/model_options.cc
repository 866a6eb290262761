#include "server/lifecycle/model_options.h"

#include <filesystem>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace sru::server::lifecycle {
namespace {

absl::StatusOr<models::VersionPolicy> ParsePolicy(absl::string_view flag, absl::string_view text) {
  absl::StatusOr<models::VersionPolicy> policy = models::ParseVersionPolicy(text);
  if (policy.ok()) return policy;
  return InvalidArgument("--", flag, ": ", policy.status().message());
}

// As ParseVersionPolicy() takes it.
std::string PolicyText(const models::VersionPolicy& policy) {
  switch (policy.kind) {
    case models::VersionPolicy::Kind::kLatest:
      return absl::StrCat("latest:", policy.latest);
    case models::VersionPolicy::Kind::kAll:
      return "all";
    case models::VersionPolicy::Kind::kNamed:
      return absl::StrCat("named:", absl::StrJoin(policy.named, ","));
  }
  return "";
}

absl::StatusOr<std::vector<models::ModelLocation>> ParseDirectories(absl::string_view flag,
                                                                    absl::string_view text) {
  std::vector<models::ModelLocation> directories;
  if (text.empty()) return directories;
  std::set<std::string> names;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::pair<std::string, std::string> words = absl::StrSplit(part, absl::MaxSplits(':', 1));
    if (!models::IsValidModelName(words.first) || words.second.empty() ||
        !names.insert(words.first).second) {
      return InvalidArgument(
          "--", flag,
          ": expected NAME:DIR, or several with different names, separated by commas, found '",
          part, "'");
    }
    directories.push_back({words.first, 1, words.second, words.second});
  }
  return directories;
}

}  // namespace

absl::StatusOr<std::vector<models::ModelLocation>> ModelOptions::Locations() const {
  if (directories.empty()) return models::ListRepository(repository, version_policy);
  return directories;
}

void AddFlags(ModelOptions* options, Flags* flags) {
  flags->Add("model_repository", &options->repository,
             "Directory of the models: <model>/<version>/, as models/FORMAT.md "
             "describes. Required without --model and --demo.");
  flags->AddParsed("model", &options->directories, "", ParseDirectories,
                   "NAME:DIR, or several separated by commas: serves the files in DIR as "
                   "version 1 of the model NAME, without a repository.");
  flags->Add("demo", &options->demo,
             "Serves the bundled models, which were installed with the program, in place of "
             "--model_repository.");
  flags->AddChoice<ModelControl>(
      "model_control", &options->control,
      {{"static", ModelControl::kStatic},
       {"poll", ModelControl::kPoll},
       {"explicit", ModelControl::kExplicit}},
      "static, poll or explicit. static: what the repository holds at the start. "
      "poll: also what changes in it later. explicit: --load_models, then what "
      "AdminService asks for.");
  flags->AddParsed("version_policy", &options->version_policy, PolicyText(options->version_policy),
                   ParsePolicy,
                   "Which versions of each model are served: latest:N, all, or named:A,B with "
                   "version numbers.");
  flags->Add("load_models", &options->load_models,
             "With --model_control=explicit, the models to load at the start, separated "
             "by commas.");

  flags->Group(Flags::kRarelyChanged);
  flags->AddTime("poll_interval_s", &options->poll_interval, absl::Seconds(1),
                 {absl::Milliseconds(10), absl::Hours(24)},
                 "With --model_control=poll, seconds between two checks of the repository. A "
                 "change takes effect when two checks in a row see the same files.");
}

absl::Status ValidateModelOptions(const ModelOptions& options) {
  if (!options.directories.empty() && options.control != ModelControl::kStatic) {
    return InvalidArgument("--model: has a meaning only with --model_control=static");
  }
  if (!options.directories.empty() && options.demo) {
    return InvalidArgument("--demo: has a meaning only without --model");
  }
  if (options.repository.empty() && options.directories.empty() && !options.demo) {
    return InvalidArgument(
        "--model_repository: expected the directory with the models, found nothing; give "
        "--model_repository=DIR, set SRU_MODEL_REPOSITORY, name one model by --model=NAME:DIR, or "
        "serve the bundled models with --demo");
  }
  if (!options.load_models.empty() && options.control != ModelControl::kExplicit) {
    return InvalidArgument(
        "--load_models: has a meaning only with --model_control=explicit; otherwise every model of "
        "the repository is loaded");
  }
  for (const std::string& model : options.load_models) {
    if (!models::IsValidModelName(model)) {
      return InvalidArgument("--load_models: expected names of models separated by commas, found '",
                             model, "'");
    }
  }
  return absl::OkStatus();
}

absl::Status UseBundledModels(ModelOptions* options) {
  if (!options->demo) return absl::OkStatus();
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("--demo: cannot find this program: /proc/self/exe: ", error.message()));
  }
  std::vector<std::string> places;
  // Of an installation, and of a checkout's folder build/.
  for (const char* place : {"../share/sru/models", "../../models/pretrained"}) {
    places.push_back((program.parent_path() / place).lexically_normal().string());
    if (!std::filesystem::is_directory(places.back(), error)) continue;
    options->repository = places.back();
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("--demo: expected the bundled models in ",
                                          absl::StrJoin(places, " or "),
                                          ", found neither; give --model_repository=DIR"));
}

}  // namespace sru::server::lifecycle
