// The running pool of one dimension of a sequence: where it starts, what each h adds, how it ends.
#ifndef SRU_KERNELS_CUDA_KERNELS_RUNNING_POOL_CUH_
#define SRU_KERNELS_CUDA_KERNELS_RUNNING_POOL_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

// Whether the pool is a maximum; else it is a sum, which only some poolings read.
__device__ __forceinline__ bool TakesMax(PoolingStep step) { return step == PoolingStep::kLargest; }

__device__ __forceinline__ float PoolStart(bool takes_max) { return takes_max ? -HUGE_VALF : 0.0f; }

// Without branches: computing both is cheaper than a branch.
__device__ __forceinline__ float PoolStep(bool takes_max, float pool, float h) {
  const float most = fmaxf(pool, h);
  const float sum = pool + h;
  return takes_max ? most : sum;
}

// `picked` is the one h that kFirst and kLast take; `scale` is 1 / length.
__device__ __forceinline__ float PoolEnd(PoolingRule rule, float pool, float picked, float scale) {
  if (rule.step == PoolingStep::kFirst || rule.step == PoolingStep::kLast) return picked;
  return rule.divides ? pool * scale : pool;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_RUNNING_POOL_CUH_
