// The fused layer's launch shape: what a block holds, how many blocks there are.
#ifndef SRU_KERNELS_CUDA_KERNELS_FUSED_SHAPE_H_
#define SRU_KERNELS_CUDA_KERNELS_FUSED_SHAPE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

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
// The longest input row, in values: layers of longer ones were slower than products and scans on an
// H100.
inline constexpr int kFusedMaxInput = 128;

// Input rows are padded to 64 or 128 values, for each of which there is a kernel.
SRU_HOST_DEVICE constexpr int FusedInput(int k) { return k <= 64 ? 64 : kFusedMaxInput; }

// The most slices of kFusedDims dimensions that a block has. Then threads: a warp per matrix and
// one that scans, for each slice.
inline constexpr int kFusedMaxSlices = 2;
SRU_HOST_DEVICE constexpr int FusedThreads(int matrices, int slices) {
  return (matrices + 1) * slices * 32;
}
// Blocks that must fit a multiprocessor's registers.
SRU_HOST_DEVICE constexpr int FusedMinBlocks(int matrices) { return matrices == 3 ? 2 : 1; }

// What of a block's x is in shared memory at a time: the chunk that is multiplied and those that
// are on their way.
inline constexpr int kFusedStages = 3;
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
  return static_cast<size_t>(kFusedStages) * FusedStageBytes(input) +
         sizeof(float) * FusedUValues(matrices, slices) +
         sizeof(uint16_t) * slices * kFusedHighwayValues;
}

static_assert(FusedSharedBytes(kFusedMaxInput, 4, kFusedMaxSlices) <= kMaxSharedBytes,
              "the largest fused layer");

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
  const int blocks = FusedGroups(args.scan) * FusedParts(args.scan, kFusedMaxSlices);
  return blocks >= num_multiprocessors ? kFusedMaxSlices : 1;
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
