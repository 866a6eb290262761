// ModelFiles: what the small files in a model's folder say, read once for the estimate of its
// memory (memory_estimate.h) and for the load that follows (model.h).
#ifndef SRU_MODELS_MODEL_FILES_H_
#define SRU_MODELS_MODEL_FILES_H_

#include <optional>

#include "absl/status/statusor.h"
#include "models/config.h"
#include "models/files/file.h"
#include "models/student.h"

namespace sru::models {

struct ModelFiles {
  FilePath directory = FilePath("");
  std::optional<Student> student;  // nullopt: a model of ours
  ModelConfig config;              // of either
};

// Reads config.json, or a student's options. Errors name the file and the key, what was expected
// and what was found.
absl::StatusOr<ModelFiles> OpenModel(const FilePath& directory);

}  // namespace sru::models

#endif  // SRU_MODELS_MODEL_FILES_H_
