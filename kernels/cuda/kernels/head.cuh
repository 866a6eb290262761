// Classifier and softmax: a block per sequence, a warp per label, all in float32. Sums are made in
// an order that depends on the sizes alone.
//
// Bound by latency: 4 bytes of weights for each product, which the second-level cache serves, and 8
// bytes written a label. Blocks: one per sequence, 4 warps each. One sequence is one block of 132
// multiprocessors.
#ifndef SRU_KERNELS_CUDA_KERNELS_HEAD_CUH_
#define SRU_KERNELS_CUDA_KERNELS_HEAD_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/rows_shape.h"

namespace sru::kernels::cuda {

// A template only so that a header may hold it.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) HeadKernel(const HeadArgs args) {
  const SequenceEntry entry = args.sequences[blockIdx.x];
  if (entry.label_row < 0) return;  // the whole block
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const T* pooled = args.pooled + static_cast<int64_t>(entry.pool_row) * args.stride;
  T* logits = args.label_results + static_cast<int64_t>(entry.label_row) * 2 * args.labels;
  T* probabilities = logits + args.labels;
  for (int label = warp; label < args.labels; label += kRowWarps) {
    const T* weight = args.weight + static_cast<int64_t>(label) * args.stride;
    float sum = 0.0f;
    for (int j = lane; j < args.stride; j += kWarpSize) sum = fmaf(pooled[j], weight[j], sum);
    sum = WarpSum(sum);
    if (lane == 0) logits[label] = sum + args.bias[label];
  }
  __syncthreads();
  if (warp != 0) return;
  float maximum = -HUGE_VALF;
  for (int label = lane; label < args.labels; label += kWarpSize) {
    maximum = fmaxf(maximum, logits[label]);
  }
  maximum = WarpMax(maximum);
  float sum = 0.0f;
  for (int label = lane; label < args.labels; label += kWarpSize) {
    const float e = expf(logits[label] - maximum);
    probabilities[label] = e;
    sum += e;
  }
  const float scale = 1.0f / WarpSum(sum);
  T* const host = args.host_results == nullptr
                      ? nullptr
                      : args.host_results + static_cast<int64_t>(entry.label_row) * 2 * args.labels;
  for (int label = lane; label < args.labels; label += kWarpSize) {
    const T probability = probabilities[label] * scale;
    probabilities[label] = probability;
    if (host == nullptr) continue;
    host[label] = logits[label];
    host[args.labels + label] = probability;
  }
}
template <typename Launch>
auto WithKernel(const HeadArgs& args, const Launch& launch) {
  const LaunchShape shape = {args.num_sequences, kRowThreads, 0, /*threads_wait=*/true};
  return launch(HeadKernel<float>, shape, args);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_HEAD_CUH_
