// The model repository: <repository>/<model>/<version>/ (FORMAT.md).
//
// <model> is one to 128 of A-Z a-z 0-9 _ . - and does not start with a dot; <version> is a positive
// integer without leading zeros. Hidden entries, plain files beside the directories and
// "lost+found" are ignored; any other directory is an error, so that a typing error never hides a
// model.
#ifndef SRU_MODELS_REPOSITORY_H_
#define SRU_MODELS_REPOSITORY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "models/model.h"

namespace sru::models {

enum class VersionPolicy {
  kLatest,  // the highest version of each model
  kAll,
};

struct ModelLocation {
  std::string name;
  int64_t version = 0;
  std::string directory;
};

bool IsValidModelName(std::string_view name);

// What there is to load, sorted by name, then version. At least one. NotFound when the repository
// is absent or has no model, InvalidArgument for a bad name, a bad version or a model without one;
// the message says what was expected.
absl::StatusOr<std::vector<ModelLocation>> ListRepository(const std::string& repository,
                                                          VersionPolicy policy);

// Loads what ListRepository() finds, in its order. The first model that fails is the error.
absl::StatusOr<std::vector<std::shared_ptr<const Model>>> LoadRepository(
    const std::string& repository, VersionPolicy policy, kernels::Backend& backend,
    const kernels::CompileOptions& options);

}  // namespace sru::models

#endif  // SRU_MODELS_REPOSITORY_H_
