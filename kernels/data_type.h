// The types that a backend may store weights and activations in.
#ifndef SRU_KERNELS_DATA_TYPE_H_
#define SRU_KERNELS_DATA_TYPE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/enum_names.h"
#include "kernels/status.h"

namespace sru::kernels {

enum class DataType { kFloat32, kBFloat16 };

constexpr const char* DataTypeName(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kBFloat16:
      return "bfloat16";
  }
  return "";
}

inline constexpr auto kAllDataTypes = AllNamed<DataTypeName>();

inline bool ParseDataType(std::string_view name, DataType* dtype) {
  return ParseNamed<DataTypeName>(name, dtype);
}

// Bytes of one stored value; 0 of no type.
constexpr size_t ValueBytes(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return 4;
    case DataType::kBFloat16:
      return 2;
  }
  return 0;
}

// What a backend answers to a type that it does not have.
inline Status UnsupportedDataType(const char* backend, DataType dtype) {
  const std::string name = DataTypeName(dtype);
  return Unsupported("dtype: the " + std::string(backend) + " backend does not have " +
                     (name.empty() ? std::to_string(static_cast<int>(dtype)) : name));
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_DATA_TYPE_H_
