// The form of a ModelInferRequest and its answer, for each call of sru.v1 that may answer it.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_

#include <memory>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/string_view.h"
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

// Takes "[3]" from the beginning of a path and returns "3"; empty if it does not begin so.
absl::string_view TakeIndex(absl::string_view* path);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_FORM_H_
