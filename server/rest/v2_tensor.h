// The values of a tensor of the Open Inference Protocol: from JSON to bytes and back. The bytes are
// those of raw_input_contents: in row-major order, little-endian; an element of BYTES is a
// little-endian uint32 with its length, then its bytes.
//
//   datatype            in JSON                                    refused
//   BOOL                true, false                                0 and 1
//   UINT8 ... INT64     a whole number                             1.0, 1e3, what is out of range
//   FP32, FP64          a number, "NaN", "Infinity", "-Infinity"   beyond the largest finite value
//   BYTES               a string                                   numbers; out: bytes not UTF-8
//   FP16, BF16          none: as binary data only
//
// Numbers go both ways without losing a bit: a number is written with the fewest digits that give
// the same value when it is read, as FP32 or as a double that is then rounded. Names such as "NaN"
// are those of proto3's JSON form.
//
// Pure functions. Errors are kInvalidArgument and say tensor, what was expected and what was found.
#ifndef SRU_SERVER_REST_V2_TENSOR_H_
#define SRU_SERVER_REST_V2_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sru::server::rest {

struct TensorType;

// As the protocol writes it: "FP32". Null if there is none of this name.
const TensorType* FindTensorType(absl::string_view name);
// "BOOL, UINT8, ...".
std::string TensorTypeNames();
// The most bytes of so many values that stand in JSON; `string_bytes`: of its strings.
size_t TensorBytesBound(const TensorType& type, size_t count, size_t string_bytes);

// The number of elements; `limit` or more is an error, as is a negative size. `tensor` as errors
// name it: "input 'text'".
absl::StatusOr<size_t> CountElements(const std::vector<int64_t>& shape, size_t limit,
                                     absl::string_view tensor);

// Reads an array of values, flat or nested as the shape says, and appends their bytes to `*raw`.
// `json` is the array alone and valid JSON. It must have as many values as the shape.
absl::Status ReadTensorData(absl::string_view json, const TensorType& type,
                            const std::vector<int64_t>& shape, absl::string_view tensor,
                            std::string* raw);

// The `count` values that `raw` has, as a flat array. CheckTensorData() says what is wrong with it.
// AppendTensorPart() writes it without brackets, from the first value of `raw` on until it takes
// `most` bytes, and returns what is left of `raw`.
absl::Status CheckTensorData(absl::string_view raw, const TensorType& type, size_t count,
                             absl::string_view tensor);
absl::string_view AppendTensorPart(absl::string_view raw, const TensorType& type, size_t most,
                                   std::string* json);

// The most bytes that the array takes, with its brackets.
size_t JsonBytesBound(size_t raw_bytes, const TensorType& type, size_t count);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_TENSOR_H_
