// The state of each version as the model manager sees it, for ListModels, the admin service and
// metrics.
#ifndef SRU_SERVER_TELEMETRY_MODEL_STATUS_H_
#define SRU_SERVER_TELEMETRY_MODEL_STATUS_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace sru::server::telemetry {

enum class ModelState {
  kLoading,
  kReady,      // served
  kUnloading,  // calls that found it are still answered
  kFailed,     // could not be loaded; the message says why
};
// "loading", "ready", "unloading", "failed".
const char* ModelStateName(ModelState state);

struct ModelStatus {
  std::string model;
  int64_t version = 0;  // 0: about the model's directory as a whole
  ModelState state = ModelState::kLoading;
  // Why it failed, or, for a version that is ready, why its changed files could not be loaded.
  // Callers see it, so it names files by their paths in the repository.
  std::string message;
};

// `message` with paths below `repository` made relative to it, such as "trec/1/config.json":
// callers need not know where the repository is on the server's machine.
std::string WithoutRepository(absl::string_view message, absl::string_view repository);

// Counts since the model was first seen.
struct ModelLoadCounts {
  std::string model;
  int64_t loads = 0;     // loads that succeeded
  int64_t failures = 0;  // loads that failed
};

}  // namespace sru::server::telemetry

#endif  // SRU_SERVER_TELEMETRY_MODEL_STATUS_H_
