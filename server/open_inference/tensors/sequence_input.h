// The inputs text, token_ids, features and lengths of a request as sequences of sru.v1. Thread-safe
// but for TaskInputs.
//
// Exactly one of text, token_ids and features is given. Errors are kInvalidArgument and start with
// the tensor.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_SEQUENCE_INPUT_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_SEQUENCE_INPUT_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/bounds/request_outline.h"
#include "server/calls/messages/request_parser.h"
#include "server/open_inference/tensors/infer_request.h"
#include "server/open_inference/tensors/task_tensors.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::open_inference {

using Sequences = google::protobuf::RepeatedPtrField<v1::Sequence>;

// Those of a request whose sequences get(request) gives.
std::unique_ptr<TaskInputs> MakeSequenceInputsOf(Sequences* (*get)(google::protobuf::Message*));
template <typename Request>
std::unique_ptr<TaskInputs> MakeSequenceInputs() {
  return MakeSequenceInputsOf([](google::protobuf::Message* request) {
    return static_cast<Request*>(request)->mutable_sequences();
  });
}

enum class SequenceForm { kText, kTokenIds, kFeatures };

// Which inputs of a request its sequences come from.
struct SequenceInput {
  SequenceForm form = SequenceForm::kText;
  int values = -1;   // index of the input
  int lengths = -1;  // index of the input; -1: none
};

// Every input has one entry of raw_input_contents and no contents, or there is no such entry.
absl::Status CheckContents(const InferRequest& request);

// `model` is the name of the model that takes `takes`.
absl::Status FindSequenceInput(const InferRequest& request, absl::string_view model,
                               const calls::ModelInput& takes, SequenceInput* input);

// Adds to `outline` what the values will take, without reading them, in terms of a request of
// sru.v1. There are not more sequences than `limits` allow.
absl::Status OutlineSequences(const InferRequest& request, const SequenceInput& input,
                              const calls::RequestLimits& limits, calls::RequestOutline* outline);

// Requires OutlineSequences().
absl::Status ReadSequences(const InferRequest& request, const SequenceInput& input,
                           const calls::ModelInput& takes, Sequences* sequences);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_SEQUENCE_INPUT_H_
