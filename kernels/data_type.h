// The data types: how a backend stores weights, embeddings and activations. States, biases, layer norms, the
// classifier of pooled vectors, sums and outputs are float32 in all of them.
//
//              weights of products          embeddings   activations   backends
//   float32    float32                      float32      float32       all
//   bfloat16   bfloat16                     bfloat16     bfloat16      all
//   int8       int8, a scale per column     bfloat16     float32       cpu, reference
//
// A new type is a value of DataType and a case in every switch of this file, which the compiler asks for. Each
// backend's Compile() takes it or answers UnsupportedDataType(); the equations are in
// reference/storage.h, which the others are tested against.
#ifndef SRU_KERNELS_DATA_TYPE_H_
#define SRU_KERNELS_DATA_TYPE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/enum_names.h"
#include "kernels/status.h"

namespace sru::kernels {

enum class DataType { kFloat32, kBFloat16, kInt8 };

constexpr const char* DataTypeName(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return "float32";
    case DataType::kBFloat16:
      return "bfloat16";
    case DataType::kInt8:
      return "int8";
  }
  return "";
}

inline constexpr auto kAllDataTypes = AllNamed<DataTypeName>();

inline bool ParseDataType(std::string_view name, DataType* dtype) {
  return ParseNamed<DataTypeName>(name, dtype);
}

// Bytes of a weight, without the scales of int8; 0 of no type.
constexpr size_t ValueBytes(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return 4;
    case DataType::kBFloat16:
      return 2;
    case DataType::kInt8:
      return 1;
  }
  return 0;
}

// Bytes of a value of an embedding, and of a value that one layer passes to the next.
struct RowBytes {
  size_t embedding = sizeof(float);
  size_t activation = sizeof(float);
};
constexpr RowBytes RowBytesOf(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
      return {4, 4};
    case DataType::kBFloat16:
      return {2, 2};
    case DataType::kInt8:
      return {2, 4};
  }
  return {};
}

// What a backend answers to a type that it does not have.
inline Status UnsupportedDataType(const char* backend, DataType dtype) {
  const std::string name = DataTypeName(dtype);
  return Unsupported("dtype: the " + std::string(backend) + " backend does not have " +
                     (name.empty() ? std::to_string(static_cast<int>(dtype)) : name));
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_DATA_TYPE_H_
