// Whether rows that should be equal are, to the bit: how the backend tries a product's algorithms
// (product_plan.h).
//
// Bound by memory: 4 bytes read for each word, besides the expected rows, which stay in the cache.
// Blocks: words / 128, thousands for a trial on 132 multiprocessors. It runs while a model loads
// and not while it serves.
#ifndef SRU_KERNELS_CUDA_KERNELS_COMPARE_CUH_
#define SRU_KERNELS_CUDA_KERNELS_COMPARE_CUH_

#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/rows_shape.h"

namespace sru::kernels::cuda {

// A template only so that a header may hold it.
template <typename Word>
__global__ void __launch_bounds__(kRowThreads) CompareKernel(const CompareArgs args) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  if (at >= int64_t{args.rows} * args.words_per_row) return;
  const int64_t row = at / args.words_per_row;
  const int64_t word = at % args.words_per_row;
  const Word expected = args.expected[row % args.period * args.words_per_row + word];
  if (args.values[at] != expected) *args.differs = 1;
}
template <typename Launch>
auto WithKernel(const CompareArgs& args, const Launch& launch) {
  return launch(CompareKernel<uint32_t>, PerValue(args.rows, args.words_per_row), args);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_COMPARE_CUH_
