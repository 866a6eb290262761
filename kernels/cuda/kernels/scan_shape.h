// The scan's launch shape: how many threads and dimensions per thread.
#ifndef SRU_KERNELS_CUDA_KERNELS_SCAN_SHAPE_H_
#define SRU_KERNELS_CUDA_KERNELS_SCAN_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/host_and_device.h"

namespace sru::kernels::cuda {

inline constexpr int kScanThreads = 64;
// The most shared memory that a block can have on every GPU that the kernels run on.
inline constexpr size_t kMaxSharedBytes = size_t{99} << 10;
// Steps that copies run ahead: the places of a thread's ring. A power of two.
inline constexpr int kScanDepth = 16;
// Steps whose copies are waited for together. Each wait costs instructions, and the last group that
// is waited for must have been begun long before.
inline constexpr int kScanGroup = 4;
inline constexpr int kScanGroups = kScanDepth / kScanGroup;
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

// What a scan writes besides the final state.
enum class ScanOutput {
  kRows,     // h, for the next layer
  kPooled,   // pooled vectors, if wanted
  kVectors,  // token vectors, and pooled vectors if wanted
};
inline constexpr ScanOutput kAllScanOutputs[] = {ScanOutput::kRows, ScanOutput::kPooled,
                                                 ScanOutput::kVectors};

inline ScanOutput OutputOf(const ScanArgs& args) {
  if (args.h != nullptr) return ScanOutput::kRows;
  return args.token_vectors != nullptr ? ScanOutput::kVectors : ScanOutput::kPooled;
}

inline int64_t ScanBlocks(const ScanArgs& args, int dims) {
  const int groups = args.directions * (args.padded / dims);
  return int64_t{args.num_sequences} * ((groups + kScanThreads - 1) / kScanThreads);
}

// Dimensions per thread, 2 or 4: the widest loads once every multiprocessor has a warp for each of
// its four schedulers, else twice as many threads, each with half of a step's instructions. Neither
// where a sequence would leave half of a block idle: its part of the ring takes the place of other
// blocks.
inline int ScanDims(const ScanArgs& args, int num_multiprocessors) {
  const bool fills_blocks = args.directions * (args.padded / 4) > kScanThreads / 2;
  return fills_blocks && ScanBlocks(args, 4) >= int64_t{2} * num_multiprocessors ? 4 : 2;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_SCAN_SHAPE_H_
