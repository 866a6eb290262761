// From a data type to the C++ type that the kernels are instantiated for.
#ifndef SRU_KERNELS_CUDA_KERNELS_STORAGE_TYPE_H_
#define SRU_KERNELS_CUDA_KERNELS_STORAGE_TYPE_H_

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/common/gate_scale.h"
#include "kernels/cuda/kernels/bfloat16.h"
#include "kernels/data_type.h"

namespace sru::kernels::cuda {

// The types that the kernels have, each with the factor of the gates for the sigmoid that the scan
// computes with it (ScanMath in device_math.cuh).
template <typename T>
struct StorageType;
template <>
struct StorageType<float> {
  static constexpr DataType kDataType = DataType::kFloat32;
  static constexpr float kGateScale = kExp2GateScale;
};
template <>
struct StorageType<BFloat16> {
  static constexpr DataType kDataType = DataType::kBFloat16;
  static constexpr float kGateScale = kTanhGateScale;
};

constexpr bool HasStorageType(DataType dtype) {
  return dtype == StorageType<float>::kDataType || dtype == StorageType<BFloat16>::kDataType;
}

// Returns use(T()), T being one of them. Compile() has refused a type without one.
template <typename Use>
auto WithStorageType(DataType dtype, const Use& use) {
  if (dtype == StorageType<float>::kDataType) return use(float());
  if (dtype == StorageType<BFloat16>::kDataType) return use(BFloat16());
  std::abort();
}

// Writes values in the storage type to `to`, which may be anywhere in memory.
inline void StoreAs(DataType dtype, const float* values, size_t count, uint8_t* to) {
  WithStorageType(dtype, [&](auto type) {
    using T = decltype(type);
    for (size_t i = 0; i < count; ++i) {
      const T value = FromFloat<T>(values[i]);
      std::memcpy(to + i * sizeof(T), &value, sizeof(T));
    }
  });
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_STORAGE_TYPE_H_
