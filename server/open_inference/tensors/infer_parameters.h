// The parameters of a request. Pure functions, thread-safe.
//
// Every error is kInvalidArgument and starts with the parameter:
//   parameters[beam_size]: expected a whole number, found a string
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_PARAMETERS_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_PARAMETERS_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/protobuf/message.h"
#include "server/open_inference/tensors/infer_request.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::open_inference {

// Those that every task has.
struct CommonParameters {
  v1::Priority priority = v1::PRIORITY_UNSPECIFIED;
  absl::Duration timeout = absl::InfiniteDuration();
  // A row without tokens does not fail the call (FillBlank() in infer_form.cc).
  bool skip_empty = false;
};
absl::StatusOr<CommonParameters> ReadCommonParameters(const InferRequest& request);
// Also of one that this server passes over.
bool IsCommonParameter(absl::string_view name);

// Sets the field of the request that has the parameter's name: a bool, an int32, a float or
// an enum by its name. `known` are the parameters that the call has besides the common ones.
absl::Status ReadField(const InferParameter& parameter, const std::vector<absl::string_view>& known,
                       google::protobuf::Message* request);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_PARAMETERS_H_
