// Token vectors and pooled vectors of rows in memory, for stacks whose last layer is normalized
// after its scan; in the others the scan itself makes them. A thread owns one dimension of one
// sequence.
#ifndef SRU_KERNELS_CUDA_POOL_CUH_
#define SRU_KERNELS_CUDA_POOL_CUH_

#include "kernels/common/pooling.h"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/kernel_args.h"
#include "kernels/cuda/rows_shape.h"
#include "kernels/cuda/running_pool.cuh"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

template <typename T>
__global__ void __launch_bounds__(kRowThreads) PoolKernel(const PoolArgs args, int blocks) {
  const SequenceEntry entry = args.sequences[static_cast<int>(blockIdx.x) / blocks];
  const int stride = args.segments * args.padded;
  const int j = static_cast<int>(blockIdx.x) % blocks * kRowThreads + static_cast<int>(threadIdx.x);
  if (j >= stride || entry.length == 0) return;
  float* token_row = nullptr;
  if (args.token_vectors != nullptr && entry.token_row >= 0) {
    token_row = args.token_vectors + static_cast<int64_t>(entry.token_row) * stride + j;
  }
  const Pooling pooling =
      args.pooled != nullptr && entry.pool_row >= 0 ? entry.pooling : Pooling::kNone;
  const T* h = static_cast<const T*>(args.h) + static_cast<int64_t>(entry.begin) * stride + j;
  const bool backward = j >= args.padded;
  const int pick = PoolingOverTokens(pooling, backward) == Pooling::kFirst ? 0 : entry.length - 1;
  const bool takes_max = TakesMax(pooling);
  float pool = PoolStart(takes_max);
  float picked = 0.0f;
  for (int t = 0; t < entry.length; ++t) {
    const float value = ToFloat(h[static_cast<int64_t>(t) * stride]);
    if (token_row != nullptr) token_row[static_cast<int64_t>(t) * stride] = value;
    pool = PoolStep(takes_max, pool, value);
    if (t == pick) picked = value;
  }
  if (pooling == Pooling::kNone) return;
  args.pooled[static_cast<int64_t>(entry.pool_row) * stride + j] =
      PoolEnd(pooling, pool, picked, 1.0f / static_cast<float>(entry.length));
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_POOL_CUH_
