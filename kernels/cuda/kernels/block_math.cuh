// The threads of a block, or of a cluster of kBlocks blocks, compute together. Blocks have kThreads
// threads, all of which must call. Every thread gets the same bits. Sums of floats are made in an
// order that depends on kThreads and their parts alone; those of whole numbers do not depend on
// any.
#ifndef SRU_KERNELS_CUDA_KERNELS_BLOCK_MATH_CUH_
#define SRU_KERNELS_CUDA_KERNELS_BLOCK_MATH_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/rows_shape.h"
#include "kernels/cuda/kernels/shared_memory.cuh"

namespace sru::kernels::cuda {

// The one 64-bit type that CUDA's atomics and shuffles take on every platform.
using Word64 = unsigned long long;

template <int kThreads>
struct BlockShared {
  static_assert(kThreads % kWarpSize == 0 && kThreads / kWarpSize <= kWarpSize,
                "a warp combines what all warps have found");
  static constexpr int kWarps = kThreads / kWarpSize;
  static constexpr int kMaxParts = 4;
  float floats[kMaxParts * kWarps];
  Word64 words[kWarps];
};

// A place in this block's shared memory, or in a block's of the cluster, which must have begun.
template <int kBlocks, typename T>
__device__ __forceinline__ T& SharedOf(T& place, int block) {
  if constexpr (kBlocks == 1) {
    return place;
  } else {
    return *static_cast<T*>(SharedOfBlock(&place, block));
  }
}

// The sum of what blocks have in that place.
template <int kBlocks>
__device__ __forceinline__ Word64 SumOfBlocks(unsigned& place) {
  Word64 sum = 0;
  for (int block = 0; block < kBlocks; ++block) sum += SharedOf<kBlocks>(place, block);
  return sum;
}

// Over the 32 lanes of a warp, all of which must call.
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

template <int kThreads, int kBlocks>
class BlockMath {
 public:
  static constexpr int kWarps = BlockShared<kThreads>::kWarps;

  explicit __device__ __forceinline__ BlockMath(BlockShared<kThreads>* shared) : shared_(*shared) {}

  static __device__ __forceinline__ int Thread() { return static_cast<int>(threadIdx.x); }
  static __device__ __forceinline__ int Warp() { return Thread() / kWarpSize; }
  static __device__ __forceinline__ int Lane() { return Thread() % kWarpSize; }
  // The block's number in its cluster.
  static __device__ __forceinline__ int Block() { return static_cast<int>(blockIdx.x) % kBlocks; }

  __device__ __forceinline__ float Max(float value) {
    value = WarpMax(value);
    if (Lane() == 0) shared_.floats[Warp()] = value;
    return WarpMax(OfWarps<kBlocks * kWarps>(shared_.floats, -HUGE_VALF,
                                             [](float a, float b) { return fmaxf(a, b); }));
  }
  __device__ __forceinline__ Word64 Max(Word64 value) {
    value = WarpMax(value);
    if (Lane() == 0) shared_.words[Warp()] = value;
    return WarpMax(OfWarps<kBlocks * kWarps>(shared_.words, Word64{0},
                                             [](Word64 a, Word64 b) { return a > b ? a : b; }));
  }

  // A value of each thread for a part of a sum. The blocks have kParts parts in all, each as many.
  __device__ __forceinline__ void SetPart(int part, float value) {
    value = WarpSum(value);
    if (Lane() == 0) shared_.floats[part * kWarps + Warp()] = value;
  }
  // The sum of all of them, whichever blocks have them.
  template <int kParts>
  __device__ __forceinline__ float SumOfParts() {
    static_assert(kParts % kBlocks == 0 && kParts / kBlocks <= BlockShared<kThreads>::kMaxParts,
                  "blocks have as many parts each, and room for them");
    return WarpSum(
        OfWarps<kParts * kWarps>(shared_.floats, 0.0f, [](float a, float b) { return a + b; }));
  }

  // The sum of the values of the blocks before this one; `total` is that of all. A block's threads
  // have the same value.
  __device__ __forceinline__ Word64 ScanBlocks(Word64 value, Word64* total) {
    Word64 before = 0;
    if constexpr (kBlocks == 1) {
      *total = value;
    } else {
      if (Thread() == 0) shared_.words[0] = value;
      SyncBlocks<kBlocks>();
      *total = 0;
      for (int block = 0; block < kBlocks; ++block) {
        if (block == Block()) before = *total;
        *total += SharedOf<kBlocks>(shared_.words[0], block);
      }
      SyncBlocks<kBlocks>();  // before the place is used again
    }
    return before;
  }

  // The sum of the values of the block's threads up to this one; `total` is that of the block.
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
  // Lane i gets values i, i + kWarpSize and so on, combined, of those that warps have put there.
  template <int kValues, typename T, typename Combine>
  __device__ __forceinline__ T OfWarps(T* shared, T of_none, const Combine& combine) {
    constexpr int kOfBlock = kValues / kBlocks;
    SyncBlocks<kBlocks>();
    T result = of_none;
#pragma unroll
    for (int i = 0; i < kValues; i += kWarpSize) {
      const int at = i + Lane();
      if (at < kValues) {
        result = combine(result, SharedOf<kBlocks>(shared[at % kOfBlock], at / kOfBlock));
      }
    }
    SyncBlocks<kBlocks>();  // before the place is used again
    return result;
  }

  BlockShared<kThreads>& shared_;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_BLOCK_MATH_CUH_
