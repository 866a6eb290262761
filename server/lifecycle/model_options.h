// The server's options on the models that it serves.
#ifndef SRU_SERVER_LIFECYCLE_MODEL_OPTIONS_H_
#define SRU_SERVER_LIFECYCLE_MODEL_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/flags.h"
#include "models/repository.h"
#include "server/lifecycle/model_control.h"

namespace sru::server::lifecycle {

struct ModelOptions {
  std::string repository;
  // Makes UseBundledModels() set the repository.
  bool demo = false;
  // Folders with the files of one model each, served as version 1 in place of a repository, unless
  // empty.
  std::vector<models::ModelLocation> directories;
  ModelControl control = ModelControl::kStatic;
  absl::Duration poll_interval = absl::Seconds(5);
  // How long polling keeps the served models while the repository is empty: time to mount its
  // volume again. No flag: who means to unload everything stops the server.
  absl::Duration empty_repository_grace = absl::Seconds(300);
  models::VersionPolicy version_policy;
  std::vector<std::string> load_models;  // at the start, when explicit

  // The versions that a static server loads.
  absl::StatusOr<std::vector<models::ModelLocation>> Locations() const;
};

void AddFlags(ModelOptions* options, Flags* flags);

// kInvalidArgument names the flag.
absl::Status ValidateModelOptions(const ModelOptions& options);

// With --demo, sets the repository to the models that were installed with this program.
// kNotFound names the folders where they are expected.
absl::Status UseBundledModels(ModelOptions* options);

}  // namespace sru::server::lifecycle

#endif  // SRU_SERVER_LIFECYCLE_MODEL_OPTIONS_H_
