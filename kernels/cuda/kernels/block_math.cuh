// What the threads of a block compute together, for blocks of kThreads threads, all of which must
// call. Every thread gets the same bits. Sums of floats are made in an order that depends on kThreads
// alone; those of whole numbers do not depend on any.
#ifndef SRU_KERNELS_CUDA_KERNELS_BLOCK_MATH_CUH_
#define SRU_KERNELS_CUDA_KERNELS_BLOCK_MATH_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/rows_shape.h"

namespace sru::kernels::cuda {

// The one 64-bit type that CUDA's atomics and shuffles take on every platform.
using Word64 = unsigned long long;

template <int kThreads>
struct BlockShared {
  static_assert(kThreads % kWarpSize == 0 && kThreads / kWarpSize <= kWarpSize,
                "a warp combines what all warps have found");
  static constexpr int kWarps = kThreads / kWarpSize;
  float floats[kWarps];
  Word64 words[kWarps];
};

// Over the 32 lanes of a warp, all of which must call.
__device__ __forceinline__ Word64 WarpSum(Word64 value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}
__device__ __forceinline__ Word64 WarpMax(Word64 value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    const Word64 other = __shfl_xor_sync(0xffffffffu, value, mask);
    if (other > value) value = other;
  }
  return value;
}
// The sum of the values of the lanes up to this one.
__device__ __forceinline__ Word64 WarpScan(Word64 value, int lane) {
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const Word64 other = __shfl_up_sync(0xffffffffu, value, static_cast<unsigned>(distance));
    if (lane >= distance) value += other;
  }
  return value;
}

template <int kThreads>
class BlockMath {
 public:
  static constexpr int kWarps = BlockShared<kThreads>::kWarps;

  explicit __device__ __forceinline__ BlockMath(BlockShared<kThreads>* shared) : shared_(*shared) {}

  static __device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int Warp() { return Thread() / kWarpSize; }
  static __device__ __forceinline__ int Lane() { return Thread() % kWarpSize; }

  __device__ __forceinline__ float Max(float value) {
    return WarpMax(OfWarps(shared_.floats, WarpMax(value), -HUGE_VALF));
  }
  __device__ __forceinline__ float Sum(float value) {
    return WarpSum(OfWarps(shared_.floats, WarpSum(value), 0.0f));
  }
  __device__ __forceinline__ Word64 Max(Word64 value) {
    return WarpMax(OfWarps(shared_.words, WarpMax(value), Word64{0}));
  }

  // The sum of the values of the threads up to this one; `total` is that of all.
  __device__ __forceinline__ Word64 Scan(Word64 value, Word64* total) {
    const Word64 in_warp = WarpScan(value, Lane());
    if (Lane() == kWarpSize - 1) shared_.words[Warp()] = in_warp;
    __syncthreads();
    Word64 before = 0;
    *total = 0;
    for (int i = 0; i < kWarps; ++i) {
      if (i == Warp()) before = *total;
      *total += shared_.words[i];
    }
    __syncthreads();
    return before + in_warp;
  }

 private:
  // Lane i gets the value of warp i, which is the same in all of that warp's lanes.
  template <typename T>
  __device__ __forceinline__ T OfWarps(T* shared, T value, T of_none) {
    if (Lane() == 0) shared[Warp()] = value;
    __syncthreads();
    const T result = Lane() < kWarps ? shared[Lane()] : of_none;
    __syncthreads();  // before the place is used again
    return result;
  }

  BlockShared<kThreads>& shared_;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_BLOCK_MATH_CUH_
