// The stack's input in the backend's rows and storage type: gathered from the embedding by token
// id, or converted from the caller's float32 features. A thread makes 16 bytes of a row.
//
// Bound by memory: a value is read and written once, 4 to 8 bytes a result by storage type. Blocks:
// bytes of all rows / 2048. 16 rows of 512 values in bfloat16 are 8 blocks of 132 multiprocessors,
// whose time is a launch's.
#ifndef SRU_KERNELS_CUDA_KERNELS_EMBEDDING_CUH_
#define SRU_KERNELS_CUDA_KERNELS_EMBEDDING_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/rows_shape.h"
#include "kernels/cuda/kernels/storage_type.h"

namespace sru::kernels::cuda {

template <typename T>
__global__ void __launch_bounds__(kRowThreads) EmbedKernel(const EmbedArgs args) {
  constexpr int kSize = kEmbedBytes / static_cast<int>(sizeof(T));
  const int stride = args.segments * args.padded;
  const int vectors = stride / kSize;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  const int t = static_cast<int>(at / vectors);
  const int p = static_cast<int>(at % vectors) * kSize;
  if (t >= args.header->num_tokens || t >= args.max_tokens) return;
  T* x = static_cast<T*>(args.x) + static_cast<int64_t>(t) * stride + p;
  if (args.token_ids != nullptr) {
    const T* row = static_cast<const T*>(args.table) + int64_t{args.token_ids[t]} * stride;
    Store<kSize>(x, LoadReadOnly<kSize>(row + p));
    return;
  }
  // A vector lies within one segment: both are multiples of it.
  const int segment = p / args.padded;
  const int j = p - segment * args.padded;
  const float* row = args.features + static_cast<int64_t>(t) * args.feature_stride;
  float values[kSize];
#pragma unroll
  for (int i = 0; i < kSize; ++i) {
    values[i] = j + i < args.size ? row[segment * args.size + j + i] : 0.0f;
  }
  Store<kSize>(x, Pack<T, kSize>::From(values));
}
template <typename Launch>
auto WithKernel(const EmbedArgs& args, const Launch& launch) {
  return WithStorageType(args.dtype, [&](auto type) {
    const int row = args.segments * args.padded * static_cast<int>(sizeof(type)) / kEmbedBytes;
    return launch(EmbedKernel<decltype(type)>, PerValue(args.max_tokens, row), args);
  });
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_EMBEDDING_CUH_
