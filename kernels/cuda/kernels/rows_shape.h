// Launch shapes of the kernels that work on rows, and of those of a program's operations.
#ifndef SRU_KERNELS_CUDA_KERNELS_ROWS_SHAPE_H_
#define SRU_KERNELS_CUDA_KERNELS_ROWS_SHAPE_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/data_type.h"
#include "kernels/host_and_device.h"

namespace sru::kernels::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr int kWarpSize = 32;
inline constexpr int kRowWarps = kRowThreads / kWarpSize;
// What a thread of the embedding kernel makes.
inline constexpr int kEmbedBytes = 16;

// Adjacent dimensions of a thread of the pooling kernel, and rows that it reads at a time.
inline constexpr int kPoolDims = 2;
inline constexpr int kPoolRows = 8;

SRU_HOST_DEVICE constexpr int64_t Blocks(int64_t threads) {
  return (threads + kRowThreads - 1) / kRowThreads;
}

// The shape of a launch.
struct LaunchShape {
  int64_t blocks = 0;
  int threads = kRowThreads;
  size_t shared_bytes = 0;
  bool threads_wait = false;  // for each other
  int cluster_blocks = 1;     // of a cluster
};

// A thread per value, or a warp per row.
inline LaunchShape PerValue(int64_t rows, int width) { return {Blocks(rows * width)}; }
inline LaunchShape PerWarp(int64_t rows) {
  return {Blocks(rows * kWarpSize), kRowThreads, 0, /*threads_wait=*/true};
}

// Each kernel of an operation has a function WithKernel(args, launch) beside it, which returns
// launch(kernel, shape, args). KernelVariants(args) are arguments for each of its kernels: both
// storage types where they have a `dtype`.
template <typename Args, typename = void>
inline constexpr bool kHasDataType = false;
template <typename Args>
inline constexpr bool kHasDataType<Args, std::void_t<decltype(Args::dtype)>> = true;
template <typename Args>
std::vector<Args> KernelVariants(const Args& args) {
  std::vector<Args> variants = {args};
  if constexpr (kHasDataType<Args>) {
    variants.push_back(args);
    variants[0].dtype = DataType::kFloat32;
    variants[1].dtype = DataType::kBFloat16;
  }
  return variants;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_ROWS_SHAPE_H_
