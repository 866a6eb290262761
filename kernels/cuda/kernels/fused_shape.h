// The fused layer's launch shape: what a block holds, how many blocks there are.
#ifndef SRU_KERNELS_CUDA_KERNELS_FUSED_SHAPE_H_
#define SRU_KERNELS_CUDA_KERNELS_FUSED_SHAPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/kernels/scan_shape.h"
#include "kernels/host_and_device.h"

namespace sru::kernels::cuda {

// Steps of one sequence that are multiplied at a time: the rows of a tensor core's tile.
inline constexpr int kFusedRows = 16;
// Sequences that a block works on side by side.
inline constexpr int kFusedSequences = 2;
// Dimensions for which a warp multiplies one matrix; a scan warp has this many of each of its
// sequences.
inline constexpr int kFusedDims = 16;
// Lanes of a scan warp that share a sequence.
inline constexpr int kFusedLanes = 32 / kFusedSequences;
static_assert(kFusedLanes == kFusedDims, "a lane scans one dimension");
// The longest input row, in values, whose weights still fit into registers.
inline constexpr int kFusedMaxInput = 512;
static_assert(kFusedMaxInput == kFuseAll && kFuseWhereFaster <= kFuseAll, "BackendOptions");

// Input rows are padded to one of 64, 128, 256 and 512 values, for each of which there is a kernel.
SRU_HOST_DEVICE constexpr int FusedInput(int k) {
  int padded = 64;
  while (padded < k) padded *= 2;
  return padded;
}

// The most slices of kFusedDims dimensions that a block has: with the longest rows a second one
// would leave a thread too few registers for its weights. Then threads: a warp per matrix and one
// that scans, for each slice.
SRU_HOST_DEVICE constexpr int FusedMaxSlices(int input) { return input <= 256 ? 2 : 1; }
SRU_HOST_DEVICE constexpr int FusedThreads(int matrices, int slices) {
  return (matrices + 1) * slices * 32;
}
SRU_HOST_DEVICE constexpr int FusedMaxThreads(int input, int matrices) {
  return FusedThreads(matrices, FusedMaxSlices(input));
}
// Blocks that must fit a multiprocessor's registers.
SRU_HOST_DEVICE constexpr int FusedMinBlocks(int input, int matrices) {
  return input <= 256 && matrices == 3 ? 2 : 1;
}

// What of a block's x is in shared memory at a time: the chunk that is multiplied and those that
// are on their way.
SRU_HOST_DEVICE constexpr int FusedStages(int input) { return input <= 256 ? 3 : 2; }
// Bytes from one row of x to the next: an odd multiple of 64, so that two rows of 64 bytes are in
// different banks.
SRU_HOST_DEVICE constexpr int FusedRowBytes(int input) { return input * 2 + 64; }
SRU_HOST_DEVICE constexpr int FusedStageBytes(int input) {
  return kFusedSequences * kFusedRows * FusedRowBytes(input);
}
// U is laid out as [matrix][slice][dimension][step]. Values from one dimension to the next: 16 byte
// loads by 8 lanes meet in no bank.
inline constexpr int kFusedURow = kFusedRows + 4;
// From one matrix to the next, and from one sequence to the next.
SRU_HOST_DEVICE constexpr int FusedUMatrix(int slices) { return slices * kFusedDims * kFusedURow; }
SRU_HOST_DEVICE constexpr int FusedUSequence(int matrices, int slices) {
  return matrices * FusedUMatrix(slices);
}
// U is made in one half while the other one is scanned.
SRU_HOST_DEVICE constexpr int FusedUValues(int matrices, int slices) {
  return 2 * kFusedSequences * FusedUSequence(matrices, slices);
}

// A scan warp's part of x for the highway term, [step][dimension] of each sequence, in two halves
// as well. The sequences are half of the banks apart.
inline constexpr int kFusedHighwaySequence = kFusedRows * kFusedDims + 16;
inline constexpr int kFusedHighwayValues = 2 * kFusedSequences * kFusedHighwaySequence;

SRU_HOST_DEVICE constexpr size_t FusedSharedBytes(int input, int matrices, int slices) {
  return static_cast<size_t>(FusedStages(input)) * FusedStageBytes(input) +
         sizeof(float) * FusedUValues(matrices, slices) +
         sizeof(uint16_t) * slices * kFusedHighwayValues;
}

static_assert(FusedSharedBytes(256, 4, 2) <= kMaxSharedBytes &&
                  FusedSharedBytes(kFusedMaxInput, 4, 1) <= kMaxSharedBytes,
              "the largest fused layers");

// Blocks that share a group of sequences: one per slices and direction.
SRU_HOST_DEVICE int FusedParts(const ScanArgs& scan, int slices) {
  const int dims = slices * kFusedDims;
  return scan.directions * ((scan.padded + dims - 1) / dims);
}
SRU_HOST_DEVICE int FusedGroups(const ScanArgs& scan) {
  return (scan.num_sequences + kFusedSequences - 1) / kFusedSequences;
}

// Wide blocks read x less often; narrow ones keep every multiprocessor busy at small batches.
inline int FusedSlices(const FusedArgs& args, int num_multiprocessors) {
  const int most = FusedMaxSlices(FusedInput(args.k));
  return FusedGroups(args.scan) * FusedParts(args.scan, most) >= num_multiprocessors ? most : 1;
}

// As many as run at a time, `per_multiprocessor` each: a block keeps its weights and goes from
// group to group.
inline int FusedBlocks(const FusedArgs& args, int slices, int num_multiprocessors,
                       int per_multiprocessor) {
  const int parts = FusedParts(args.scan, slices);
  const int groups = std::min(FusedGroups(args.scan),
                              std::max(1, per_multiprocessor * num_multiprocessors / parts));
  return groups * parts;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_FUSED_SHAPE_H_
