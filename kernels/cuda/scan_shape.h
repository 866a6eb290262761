// The scan's launch shape: how many threads and dimensions per thread.
#ifndef SRU_KERNELS_CUDA_SCAN_SHAPE_H_
#define SRU_KERNELS_CUDA_SCAN_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/host_and_device.h"
#include "kernels/cuda/kernel_args.h"

namespace sru::kernels::cuda {

inline constexpr int kScanThreads = 64;
// The most shared memory that a block can have on every GPU that the kernels run on.
inline constexpr size_t kMaxSharedBytes = size_t{99} << 10;
// Steps that copies run ahead: the places of a thread's ring. A power of two.
inline constexpr int kScanDepth = 16;
inline constexpr int kScanPlanes = 4;  // U0, U1, U2 and the highway term

// Of a block: [place][plane][thread] vectors and, where rows are found by token id, [place][thread]
// ids.
SRU_HOST_DEVICE constexpr int ScanRowBytes(int vector_bytes) {
  return kScanDepth * kScanPlanes * kScanThreads * vector_bytes;
}
SRU_HOST_DEVICE constexpr int ScanSharedBytes(int vector_bytes, bool by_token) {
  const int id_bytes = kScanDepth * kScanThreads * static_cast<int>(sizeof(int32_t));
  return ScanRowBytes(vector_bytes) + (by_token ? id_bytes : 0);
}

static_assert(ScanSharedBytes(16, /*by_token=*/true) <= kMaxSharedBytes, "the widest scan");

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
