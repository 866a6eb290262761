// The datatypes that tensors have here. The protocol writes them as names in requests, and as an
// enum in configs.
#ifndef SRU_SERVER_OPEN_INFERENCE_TENSORS_DATATYPE_H_
#define SRU_SERVER_OPEN_INFERENCE_TENSORS_DATATYPE_H_

#include <cstdint>
#include <type_traits>

#include "absl/strings/string_view.h"
#include "inference/open_inference.pb.h"

namespace sru::server::open_inference {

enum class Datatype { kBytes, kInt32, kInt64, kFp32, kFp64 };

struct DatatypeInfo {
  const char* name = "";
  inference::DataType in_config = inference::TYPE_INVALID;
  int64_t element_bytes = 0;  // 0: elements differ
};
// The compiler warns when one is missing.
constexpr DatatypeInfo Describe(Datatype datatype) {
  switch (datatype) {
    case Datatype::kBytes:
      return {"BYTES", inference::TYPE_STRING, 0};
    case Datatype::kInt32:
      return {"INT32", inference::TYPE_INT32, 4};
    case Datatype::kInt64:
      return {"INT64", inference::TYPE_INT64, 8};
    case Datatype::kFp32:
      return {"FP32", inference::TYPE_FP32, 4};
    case Datatype::kFp64:
      return {"FP64", inference::TYPE_FP64, 8};
  }
  return {};
}

// That of a value: a text, or a number.
template <typename Value>
constexpr Datatype DatatypeOf() {
  if constexpr (std::is_same_v<Value, absl::string_view>) return Datatype::kBytes;
  if constexpr (std::is_same_v<Value, int32_t>) return Datatype::kInt32;
  if constexpr (std::is_same_v<Value, float>) return Datatype::kFp32;
  if constexpr (std::is_same_v<Value, double>) return Datatype::kFp64;
}

}  // namespace sru::server::open_inference

#endif  // SRU_SERVER_OPEN_INFERENCE_TENSORS_DATATYPE_H_
