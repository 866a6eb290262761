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
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sru::server::rest {

enum class TensorType {
  kBool,
  kUint8,
  kUint16,
  kUint32,
  kUint64,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFp16,
  kFp32,
  kFp64,
  kBf16,
  kBytes
};

// As the protocol writes it: "FP32".
std::optional<TensorType> ParseTensorType(absl::string_view name);
absl::string_view TensorTypeName(TensorType type);
// "BOOL, UINT8, ...".
std::string TensorTypeNames();
// Bytes of an element; for BYTES those of its length.
size_t ElementBytes(TensorType type);
// Whether the type has a form in JSON.
bool HasJsonForm(TensorType type);

// The number of elements; `limit` or more is an error, as is a negative size. `tensor` as errors
// name it: "input 'text'".
absl::StatusOr<size_t> CountElements(const std::vector<int64_t>& shape, size_t limit,
                                     absl::string_view tensor);

// Reads an array of values, flat or nested as the shape says, and appends their bytes to `*raw`.
// `json` is the array alone and valid JSON. It must have as many values as the shape.
absl::Status ReadTensorData(absl::string_view json, TensorType type,
                            const std::vector<int64_t>& shape, absl::string_view tensor,
                            std::string* raw);

// The `count` values that `raw` has, as a flat array. CheckTensorData() says what is wrong with it.
// AppendTensorPart() writes it without brackets, from the first value of `raw` on until it takes
// `most` bytes, and returns what is left of `raw`. `is_first`: no value has been appended yet.
absl::Status CheckTensorData(absl::string_view raw, TensorType type, size_t count,
                             absl::string_view tensor);
absl::string_view AppendTensorPart(absl::string_view raw, TensorType type, bool is_first,
                                   size_t most, std::string* json);

// The most bytes that the array takes, with its brackets.
size_t JsonBytesBound(size_t raw_bytes, TensorType type, size_t count);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_V2_TENSOR_H_
