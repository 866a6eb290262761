// The inputs text, token_ids, features and lengths of a request as sequences of sru.v1. Pure functions, thread-safe.
//
// Exactly one of text, token_ids and features is given. Errors are kInvalidArgument and start with the tensor.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_SEQUENCE_INPUT_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_SEQUENCE_INPUT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/bounds/request_outline.h"
#include "server/open_inference/tensors/infer_request.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::open_inference {

enum class SequenceForm { kText, kTokenIds, kFeatures };
constexpr const char* SequenceFormName(SequenceForm form) {
  switch (form) {
    case SequenceForm::kText:
      return "text";
    case SequenceForm::kTokenIds:
      return "token_ids";
    case SequenceForm::kFeatures:
      return "features";
  }
  return "";
}

// What a model says of its sequences.
struct SequenceModel {
  absl::string_view name;
  bool takes_text = false;
  int vocabulary_size = 0;  // 0: no token ids
  bool takes_features = false;
  int input_size = 0;  // features per token
};

// Its inputs, for an error: "text, token_ids, lengths".
std::string InputNames(const SequenceModel& model);

// Which inputs of a request its sequences come from.
struct SequenceInput {
  SequenceForm form = SequenceForm::kText;
  int values = -1;   // index of the input
  int lengths = -1;  // index of the input; -1: none
};

// Every input has one entry of raw_input_contents and no contents, or there is no such entry.
absl::Status CheckContents(const InferRequest& request);

absl::Status FindSequenceInput(const InferRequest& request, const SequenceModel& model,
                               SequenceInput* input);

// Adds to `outline` what the values will take, without reading them, in terms of a request of sru.v1. There are not more sequences
// than `limits` allow.
absl::Status OutlineSequences(const InferRequest& request, const SequenceInput& input,
                              const calls::RequestLimits& limits, calls::RequestOutline* outline);

// Requires OutlineSequences().
absl::Status ReadSequences(const InferRequest& request, const SequenceInput& input,
                           const SequenceModel& model,
                           google::protobuf::RepeatedPtrField<v1::Sequence>* sequences);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_SEQUENCE_INPUT_H_
