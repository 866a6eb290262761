// From a data type to the C++ type that the kernels are instantiated for.
#ifndef SRU_KERNELS_CUDA_STORAGE_TYPE_H_
#define SRU_KERNELS_CUDA_STORAGE_TYPE_H_

#include <cstdlib>

#include "kernels/cuda/bfloat16.h"
#include "kernels/data_type.h"

namespace sru::kernels::cuda {

constexpr bool HasStorageType(DataType dtype) {
  switch (dtype) {
    case DataType::kFloat32:
    case DataType::kBFloat16:
      return true;
    case DataType::kInt8:
      return false;
  }
  return false;
}

// Returns use(T()), T being float or BFloat16. Compile() has refused a type without one.
template <typename Use>
auto WithStorageType(DataType dtype, const Use& use) {
  switch (dtype) {
    case DataType::kFloat32:
      return use(float());
    case DataType::kBFloat16:
      return use(BFloat16());
    case DataType::kInt8:
      break;
  }
  std::abort();
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STORAGE_TYPE_H_
