// The calls of inference, and how the protocol names models and versions. The calls answer whenever
// that may be; `context` outlives them.
#ifndef SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_
#define SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/calls/exchange.h"
#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"
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

// ModelInfer: reads a request as far as to find its model and the call that answers it, and starts
// that call in its form.
calls::CallHandler* StartModelInfer(const calls::ServiceContext& context,
                                    calls::Exchange* exchange);

// ModelStreamInfer: a stream of requests that are answered in order. Each request is a call of its
// own of `infer`, the row of ModelInfer, so that it is limited, checked and counted as one that
// comes alone.
calls::CallHandler* StartModelStreamInfer(const calls::ServiceContext& context,
                                          calls::Exchange* exchange, const calls::Method& infer);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_MODEL_INFER_H_
