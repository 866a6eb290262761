#include "models/model_files.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace sru::models {

absl::StatusOr<ModelFiles> OpenModel(const FilePath& directory) {
  ModelFiles files;
  files.directory = directory;
  SRU_ASSIGN_OR_RETURN(files.student, OpenStudent(directory));
  if (files.student.has_value()) {
    files.config = files.student->config;
    return files;
  }
  absl::StatusOr<ModelConfig> config = ReadModelConfig(directory / "config.json");
  if (absl::IsNotFound(config.status())) {
    return absl::NotFoundError(
        absl::StrCat(config.status().message(),
                     "; nor are there model*.npz or model*.bin of a student of Marian"));
  }
  SRU_RETURN_UNLESS_OK(config.status());
  files.config = *std::move(config);
  return files;
}

}  // namespace sru::models
