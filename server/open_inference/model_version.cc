#include "server/open_inference/model_version.h"

#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/repository.h"
#include "server/open_inference/tensors/infer_request.h"

namespace sru::server::open_inference {

absl::StatusOr<int64_t> ParseModelVersion(absl::string_view field, absl::string_view text) {
  if (text.empty()) return 0;
  SRU_RETURN_UNLESS_OK(models::CheckNameLength(field, text));
  int64_t version = 0;
  if (absl::SimpleAtoi(text, &version) && version > 0) return version;
  return InvalidArgument(field, ": ", Quoted(text),
                         ", expected a positive number, or nothing for the latest version");
}

absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> FindModel(
    const lifecycle::ModelRegistry& registry, absl::string_view prefix, absl::string_view name,
    absl::string_view version) {
  if (name.empty()) {
    return InvalidArgument(prefix, "name: empty, expected the name of a model");
  }
  SRU_RETURN_UNLESS_OK(models::CheckNameLength(absl::StrCat(prefix, "name"), name));
  SRU_ASSIGN_OR_RETURN(const int64_t number,
                       ParseModelVersion(absl::StrCat(prefix, "version"), version));
  return registry.Find(std::string(name), number);
}

}  // namespace sru::server::open_inference
