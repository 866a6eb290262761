// The form of a ModelInferRequest and its answer, for each call of sru.v1 that may answer it.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "inference/open_inference.pb.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/messages/message_form.h"
#include "server/lifecycle/model_registry.h"
#include "server/open_inference/tensors/infer_parameters.h"
#include "server/open_inference/tensors/infer_request.h"
#include "server/open_inference/tensors/message_bytes.h"
#include "server/open_inference/tensors/task_tensors.h"

namespace sru::server::open_inference {

// What is known of a ModelInfer before its call begins.
struct InferCall {
  explicit InferCall(calls::ByteBudget* budget) : bytes(budget) {}

  MessageBytes bytes;
  InferRequest request;  // points into `bytes`
  std::string id;
  std::shared_ptr<lifecycle::ServedModel> served;
  CommonParameters common;
  const TaskTensors* tensors = nullptr;
  absl::InlinedVector<const Output*, 4> outputs;  // of `tensors`
  calls::RequestLimits limits;

  const models::Model& model() const { return *served->model; }
};
using InferCallPtr = std::unique_ptr<InferCall>;

calls::MessageFormPtr MakeInferForm(InferCallPtr call);

// Writes `head`, which has no values yet, and then tensors of these sizes in bytes, whose values
// write(tensor, to) writes, unaligned. Their memory is taken once. kInvalidArgument if the answer
// would be larger than a message can be.
absl::Status WriteInferResponse(const inference::ModelInferResponse& head,
                                absl::Span<const size_t> sizes,
                                absl::FunctionRef<void(size_t tensor, uint8_t* to)> write,
                                absl::Cord* bytes);
// Writes an element of BYTES and returns where the next one goes.
uint8_t* WriteElement(absl::string_view text, uint8_t* to);

// Takes "[3]" from the beginning of a path and returns "3"; empty if it does not begin so.
absl::string_view TakeIndex(absl::string_view* path);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_
