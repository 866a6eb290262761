// How the Open Inference Protocol names models and versions. Pure functions, thread-safe.
#ifndef SRU_SERVER_OPEN_INFERENCE_MODEL_VERSION_H_
#define SRU_SERVER_OPEN_INFERENCE_MODEL_VERSION_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/lifecycle/model_registry.h"

namespace sru::server::open_inference {

// 0 for an empty text. kInvalidArgument, which names `field`, for anything but a positive number in
// decimal.
absl::StatusOr<int64_t> ParseModelVersion(absl::string_view field, absl::string_view text);

// The model with the name and version of fields that begin with `prefix`: "model_" for model_name
// and model_version. kInvalidArgument for an empty name, kNotFound when it is not loaded.
absl::StatusOr<std::shared_ptr<lifecycle::ServedModel>> FindModel(
    const lifecycle::ModelRegistry& registry, absl::string_view prefix, absl::string_view name,
    absl::string_view version);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_MODEL_VERSION_H_
