// Reads the values of an input tensor, in either of their forms: raw, or typed contents. Pure
// functions, thread-safe.
//
// Every error is kInvalidArgument and starts with the tensor:
//   input token_ids: datatype FP32, expected INT64 or INT32
//   input text: 7 bytes in raw_input_contents[0], expected 12 for shape [3] of INT32
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_TENSOR_VALUES_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_TENSOR_VALUES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/open_inference/tensors/infer_request.h"

namespace sru::server::open_inference {

// An input of a request with its values.
struct TensorValues {
  const InferInput* input = nullptr;
  int index = 0;           // among the inputs
  absl::string_view name;  // as the model has it
  bool is_raw = false;
  absl::string_view raw;
};

// Input `index` of the request.
TensorValues ValuesOf(const InferRequest& request, int index, absl::string_view name);

// "[2, 3]"
std::string ShapeText(const InferInput& input);

// Whether the shape is [batch], or [batch, 1], as Triton's configs write it.
bool IsColumn(const InferInput& input);
// An error unless it is.
absl::Status CheckColumn(const InferInput& input, absl::string_view name);

// The number of elements by the shape: at most INT32_MAX.
absl::StatusOr<int64_t> NumElements(const TensorValues& values);

// Each of these takes memory by the number of elements only once it is known that all of them are
// there.

// The elements of a tensor of BYTES. They point into the request.
absl::StatusOr<std::vector<absl::string_view>> ReadStrings(const TensorValues& values);
// The same for elements that must be UTF-8.
absl::StatusOr<std::vector<absl::string_view>> ReadTexts(const TensorValues& values);

// Those of a tensor of INT64 or INT32.
absl::StatusOr<std::vector<int64_t>> ReadIntegers(const TensorValues& values);

// Those of a tensor of FP32, little-endian, in the request or in `storage`.
absl::StatusOr<absl::string_view> ReadFloats(const TensorValues& values, std::string* storage);

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_TENSOR_VALUES_H_
