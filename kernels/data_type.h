// The data types: how a backend stores weights, embeddings and activations. States, biases, layer
// norms, the classifier of pooled vectors, sums and outputs are float32 in all of them.
//
//              weights of products          embeddings   activations   backends
//   float32    float32                      float32      float32       all
//   bfloat16   bfloat16                     bfloat16     bfloat16      all
//   int8       int8, a scale per column     bfloat16     float32       cpu, reference
//
// A new type is a value of DataType and its row of the table. Each backend's Compile() takes it or
// answers UnsupportedDataType(); the equations are in reference/storage.h, which the others are
// tested against.
#ifndef SRU_KERNELS_DATA_TYPE_H_
#define SRU_KERNELS_DATA_TYPE_H_

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>

#include "kernels/enum_names.h"
#include "kernels/status.h"

namespace sru::kernels {

enum class DataType { kFloat32, kBFloat16, kInt8 };

// Bytes that a value takes.
struct PackedBytes {
  size_t weight = sizeof(float);
  size_t embedding = sizeof(float);
  size_t activation = sizeof(float);  // that one layer passes to the next
  size_t column = 0;                  // of a product's weights, beside these: the scale of int8
};

struct DataTypeRow {
  const char* name;
  PackedBytes bytes;
};
inline constexpr DataTypeRow kDataTypeRows[] = {
    // in the enum's order
    {"float32", {4, 4, 4, 0}},
    {"bfloat16", {2, 2, 2, 0}},
    {"int8", {1, 2, 4, 4}},
};

// A value that is no type has no name and no bytes.
constexpr DataTypeRow RowOf(DataType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return index < std::size(kDataTypeRows) ? kDataTypeRows[index] : DataTypeRow{"", {0, 0, 0, 0}};
}
constexpr const char* DataTypeName(DataType dtype) { return RowOf(dtype).name; }

inline constexpr auto kAllDataTypes = AllNamed<DataTypeName>();

inline bool ParseDataType(std::string_view name, DataType* dtype) {
  return ParseNamed<DataTypeName>(name, dtype);
}

constexpr size_t ValueBytes(DataType dtype) { return RowOf(dtype).bytes.weight; }

// What a backend answers to a type that it does not have.
inline Status UnsupportedDataType(const char* backend, DataType dtype) {
  const std::string name = DataTypeName(dtype);
  return Unsupported("dtype: the ", backend, " backend does not have ",
                     (name.empty() ? std::to_string(static_cast<int>(dtype)) : name));
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_DATA_TYPE_H_
