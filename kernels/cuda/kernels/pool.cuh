// Token vectors and pooled vectors of rows in memory, for stacks whose last layer is normalized
// after its scan; in the others the scan itself makes them. A thread owns kPoolDims adjacent
// dimensions of one sequence.
//
// Rows are read kPoolRows at a time, and before any is written: a store might change what is read
// next for all that the compiler knows, and each row would wait for memory alone.
//
// Bound by memory at large batches: 2 or 4 bytes read a step and dimension, and 4 written where
// token vectors are wanted. At small ones bound by trips to memory, one for kPoolRows steps.
// Blocks: sequences x directions x hidden / 256, rounded up per sequence. 32 sequences of 2 x 128
// are 32 blocks of 132 multiprocessors.
#ifndef SRU_KERNELS_CUDA_KERNELS_POOL_CUH_
#define SRU_KERNELS_CUDA_KERNELS_POOL_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/rows_shape.h"
#include "kernels/cuda/kernels/running_pool.cuh"
#include "kernels/cuda/kernels/storage_type.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

// Of each sequence.
SRU_HOST_DEVICE constexpr int PoolBlocks(const PoolArgs& args) {
  return static_cast<int>(Blocks(args.segments * args.padded / kPoolDims));
}

// Of one thread, from row to row.
struct PoolThread {
  float* token_row;  // of the next row, if they are wanted
  int stride;
  int length;
  int pick;  // the token whose values kFirst and kLast take
  bool takes_max;
  float pool[kPoolDims];
  float picked[kPoolDims];

  // All rows; `h` is the first one. kStores: token vectors are wanted.
  template <bool kStores, typename T>
  __device__ __forceinline__ void Run(const T* h) {
    for (int t = 0; t < length; t += kPoolRows) {
      Packed<T, kPoolDims> rows[kPoolRows];
      // At the end the last row is read again instead of what is behind it.
#pragma unroll
      for (int i = 0; i < kPoolRows; ++i) {
        rows[i] = Load<kPoolDims>(h);
        if (t + i + 1 < length) h += stride;
      }
#pragma unroll
      for (int i = 0; i < kPoolRows; ++i) Add<kStores>(rows[i], t + i);
    }
  }

 private:
  template <bool kStores, typename T>
  __device__ __forceinline__ void Add(const Packed<T, kPoolDims>& row, int t) {
    float values[kPoolDims];
#pragma unroll
    for (int d = 0; d < kPoolDims; ++d) values[d] = Unpack(row, d);
    if constexpr (kStores) {
      if (t < length) StoreValues<kPoolDims>(token_row, values);
      token_row += stride;
    }
#pragma unroll
    for (int d = 0; d < kPoolDims; ++d) {
      // Chosen, not branched: a load that only a branch uses is made, and waited for, there.
      const float next = PoolStep(takes_max, pool[d], values[d]);
      pool[d] = t < length ? next : pool[d];
      picked[d] = t == pick ? values[d] : picked[d];
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kRowThreads) PoolKernel(const PoolArgs args) {
  const int blocks = PoolBlocks(args);
  const SequenceEntry entry = args.sequences[static_cast<int>(blockIdx.x) / blocks];
  const int stride = args.segments * args.padded;
  const int j =
      (static_cast<int>(blockIdx.x) % blocks * kRowThreads + static_cast<int>(threadIdx.x)) *
      kPoolDims;
  if (j >= stride || entry.length == 0) return;
  PoolThread thread;
  thread.stride = stride;
  thread.length = entry.length;
  thread.token_row = nullptr;
  if (args.token_vectors != nullptr && entry.token_row >= 0) {
    thread.token_row = args.token_vectors + static_cast<int64_t>(entry.token_row) * stride + j;
  }
  const Pooling pooling =
      args.pooled != nullptr && entry.pool_row >= 0 ? entry.pooling : Pooling::kNone;
  const T* h = static_cast<const T*>(args.h) + static_cast<int64_t>(entry.begin) * stride + j;
  const bool backward = j >= args.padded;
  const PoolingRule rule = RuleOf(pooling);
  const bool picks_first = PoolingOverTokens(rule.step, backward) == PoolingStep::kFirst;
  thread.pick = picks_first ? 0 : entry.length - 1;
  thread.takes_max = TakesMax(rule.step);
#pragma unroll
  for (int d = 0; d < kPoolDims; ++d) {
    thread.pool[d] = PoolStart(thread.takes_max);
    thread.picked[d] = 0.0f;
  }
  if (thread.token_row != nullptr) {
    thread.Run<true>(h);
  } else {
    thread.Run<false>(h);
  }
  if (pooling == Pooling::kNone) return;
  float* const pooled = args.pooled + static_cast<int64_t>(entry.pool_row) * stride + j;
  const float scale = 1.0f / static_cast<float>(entry.length);
#pragma unroll
  for (int d = 0; d < kPoolDims; ++d) {
    pooled[d] = PoolEnd(rule, thread.pool[d], thread.picked[d], scale);
  }
}
template <typename Launch>
auto WithKernel(const PoolArgs& args, const Launch& launch) {
  return WithStorageType(args.dtype, [&](auto type) {
    const LaunchShape shape = {int64_t{args.num_sequences} * PoolBlocks(args)};
    return launch(PoolKernel<decltype(type)>, shape, args);
  });
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_POOL_CUH_
