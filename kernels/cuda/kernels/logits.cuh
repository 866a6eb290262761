// A row of logits as a block's threads read it, and the order of its symbols.
#ifndef SRU_KERNELS_CUDA_KERNELS_LOGITS_CUH_
#define SRU_KERNELS_CUDA_KERNELS_LOGITS_CUH_

#include "kernels/cuda/kernels/block_math.cuh"
#include "kernels/cuda/kernels/device_math.cuh"

namespace sru::kernels::cuda {

// Larger for larger logits; equal for 0 and -0. What a NaN's place is does not matter.
__device__ __forceinline__ uint32_t OrderedBits(float logit) {
  const uint32_t bits = FloatToBits(logit + 0.0f);  // -0 is 0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float FromOrderedBits(uint32_t ordered) {
  return BitsToFloat((ordered & 0x80000000u) != 0 ? ordered & 0x7fffffffu : ~ordered);
}

// Larger for better symbols: those with larger logits and, of equal ones, with smaller ids. A key
// is not 0.
__device__ __forceinline__ Word64 KeyOf(uint32_t ordered_bits, int id) {
  return static_cast<Word64>(ordered_bits) << 32 | ~static_cast<uint32_t>(id);
}
__device__ __forceinline__ Word64 KeyOf(float logit, int id) {
  return KeyOf(OrderedBits(logit), id);
}
__device__ __forceinline__ float LogitOf(Word64 key) {
  return FromOrderedBits(static_cast<uint32_t>(key >> 32));
}
__device__ __forceinline__ int32_t IdOf(Word64 key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// The logits of `size` symbols of a row, from `begin` on. A thread has every kThreads-th of them.
template <int kThreads>
struct Logits {
  // use(id, logit) for each of the thread's own, by ascending ids. kGroup loads are on their way at
  // a time.
  template <int kGroup = 4, typename Use>
  __device__ __forceinline__ void ForEach(const Use& use) const {
    int i = static_cast<int>(threadIdx.x);
    for (; i < size - (kGroup - 1) * kThreads; i += kGroup * kThreads) {
      float values[kGroup];
#pragma unroll
      for (int k = 0; k < kGroup; ++k) values[k] = at[i + k * kThreads];
#pragma unroll
      for (int k = 0; k < kGroup; ++k) use(begin + i + k * kThreads, values[k]);
    }
#pragma unroll 1
    for (; i < size; i += kThreads) use(begin + i, at[i]);
  }

  // The best key of the thread's own, of those that are smaller than `limit`; 0 = none.
  __device__ __forceinline__ Word64 Best(Word64 limit) const {
    Word64 best = 0;
    ForEach([&](int v, float logit) {
      const Word64 key = KeyOf(logit, v);
      if (key < limit && key > best) best = key;
    });
    return best;
  }

  // A part of them, of `part_size` symbols or what is left.
  __device__ __forceinline__ Logits Part(int part, int part_size) const {
    const int first = part * part_size;
    return {at + first, begin + first, size - first < part_size ? size - first : part_size};
  }

  __device__ __forceinline__ bool Has(int id) const {
    return static_cast<unsigned>(id - begin) < static_cast<unsigned>(size);
  }
  __device__ __forceinline__ float& operator[](int id) const { return at[id - begin]; }

  float* at;
  int begin;
  int size;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_LOGITS_CUH_
