// The scan's launch shape: how many threads and dimensions per thread.
#ifndef SRU_KERNELS_CUDA_SCAN_SHAPE_H_
#define SRU_KERNELS_CUDA_SCAN_SHAPE_H_

#include <cstdint>

#include "kernels/cuda/kernel_args.h"

namespace sru::kernels::cuda {

inline constexpr int kScanThreads = 64;
// Steps that loads run ahead.
inline constexpr int kScanDepth = 8;

inline int64_t ScanBlocks(const ScanArgs& args, int dims) {
  const int groups = args.directions * (args.padded / dims);
  return int64_t{args.num_sequences} * ((groups + kScanThreads - 1) / kScanThreads);
}

// Dimensions per thread, 2 or 4: the widest loads once there is work for every multiprocessor, else
// twice as many threads, each with half of a step's instructions.
inline int ScanDims(const ScanArgs& args, int num_multiprocessors) {
  return ScanBlocks(args, 4) >= num_multiprocessors ? 4 : 2;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_SCAN_SHAPE_H_
