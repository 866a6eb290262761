// InferRequest: a ModelInferRequest as views of its bytes. Nothing is copied, and its memory does
// not depend on the size of its tensors, so that a request can be refused for little.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_REQUEST_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_REQUEST_H_

#include <cstdint>
#include <string>
#include <variant>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sru::server::open_inference {

// More of these than any model or client of the protocol has are refused.
inline constexpr int kMaxTensors = 16;
inline constexpr int kMaxDimensions = 8;
inline constexpr int kMaxParameters = 32;
// Fields of the whole request, those of its parts counted: what the above allow, and unknown ones.
inline constexpr int kMaxFields = 2048;

struct InferParameter {
  absl::string_view name;
  // Empty: none was set.
  std::variant<std::monostate, bool, int64_t, absl::string_view, double, uint64_t> value;
};

struct InferInput {
  absl::string_view name;
  absl::string_view datatype;
  absl::InlinedVector<int64_t, 4> shape;
  bool has_contents = false;
  absl::string_view contents;  // the bytes of an InferTensorContents
};

struct InferRequest {
  absl::string_view model_name;
  absl::string_view model_version;
  absl::string_view id;
  absl::InlinedVector<InferParameter, 2> parameters;
  absl::InlinedVector<InferInput, 2> inputs;
  absl::InlinedVector<absl::string_view, 4> outputs;  // names
  absl::InlinedVector<absl::string_view, 2> raw_inputs;
};

// Finds the fields of a request for which nothing has to be explained: false for bytes that are no
// such message, or for too many parts. Thread-safe.
bool FindInferFields(absl::string_view bytes, InferRequest* request);

// Of a field that is set twice the last value counts, except for `contents`. kInvalidArgument for
// bytes that are no such message, for strings that are not UTF-8 and would come back, for too many
// parts, and kUnimplemented for what Triton alone has: shared memory and the classification of
// outputs. Thread-safe.
absl::Status ReadInferRequest(absl::string_view bytes, InferRequest* request);

// `text` for a message: in quotes, escaped and cut if it is long.
std::string Quoted(absl::string_view text);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_INFER_REQUEST_H_
