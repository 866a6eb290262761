// The shape of a launch of SkinnyKernel (skinny.cuh), for the host and for the kernel.
#ifndef SRU_KERNELS_CUDA_KERNELS_SKINNY_SHAPE_H_
#define SRU_KERNELS_CUDA_KERNELS_SKINNY_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/host_and_device.h"

namespace sru::kernels::cuda {

inline constexpr int kSkinnyChunk = 64;  // values of k in a stage of the ring
inline constexpr int kSkinnyStages = 8;
// Multiplying warps of a block whose warps share one copy of x. Products with fewer columns have
// blocks of one warp, so that every multiprocessor gets work.
inline constexpr int kSkinnyWarps = 4;
// Beyond these rows the library's tiles are full, and weights would be read too often.
inline constexpr int kMaxSkinnyRows = 160;

// Columns of y that a warp makes, for values of so many bytes.
SRU_HOST_DEVICE constexpr int SkinnyColumns(int value_bytes) { return value_bytes == 4 ? 8 : 16; }
// Bytes from a row of a stage to the next one; the last 16 keep rows on different banks.
SRU_HOST_DEVICE constexpr int SkinnyPitch(int value_bytes) {
  return kSkinnyChunk * value_bytes + 16;
}
// `block_rows` are those of x in a stage.
SRU_HOST_DEVICE constexpr int SkinnyStageBytes(int value_bytes, int warps, int block_rows) {
  return (warps * SkinnyColumns(value_bytes) + block_rows) * SkinnyPitch(value_bytes);
}

// A block that makes x by a layer norm has this many warps. It keeps whole rows of x in shared
// memory, a pitch of bytes apart; each warp makes a row of bfloat16 in a row of float32 of its own.
inline constexpr int kNormalizingWarps = 8;
SRU_HOST_DEVICE constexpr int NormalizedPitch(int value_bytes) {
  return kMaxNormalizedWidth * value_bytes + 16;
}
SRU_HOST_DEVICE constexpr int NormalizedBytes(int value_bytes, int block_rows) {
  const int in_float32 =
      value_bytes == 4 ? 0
                       : kNormalizingWarps * kMaxNormalizedWidth * static_cast<int>(sizeof(float));
  return block_rows * NormalizedPitch(value_bytes) + in_float32;
}

struct SkinnyLaunch {
  int warps;  // that multiply, of a block; one more copies
  int threads;
  int blocks;  // all that share columns are next to each other
  size_t shared_bytes;
};

// `block_rows` is the kernel's kRows.
inline SkinnyLaunch SkinnyLaunchOf(const SkinnyArgs& args, bool normalizes, int value_bytes,
                                   int block_rows, int num_multiprocessors,
                                   size_t max_shared_bytes) {
  const auto shared_bytes = [&](int warps) {
    const size_t ring = static_cast<size_t>(kSkinnyStages) *
                        SkinnyStageBytes(value_bytes, warps, normalizes ? 0 : block_rows);
    return ring + (normalizes ? NormalizedBytes(value_bytes, block_rows) : 0);
  };
  const int columns = SkinnyColumns(value_bytes);
  const int column_warps = (args.n + columns - 1) / columns;
  const bool many = column_warps >= kSkinnyWarps * num_multiprocessors &&
                    shared_bytes(kSkinnyWarps) <= max_shared_bytes;
  const int warps = many ? kSkinnyWarps : 1;
  const int row_blocks = (args.rows + block_rows - 1) / block_rows;
  return {warps, 32 * (normalizes ? kNormalizingWarps : warps + 1),
          (column_warps + warps - 1) / warps * row_blocks, shared_bytes(warps)};
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_SKINNY_SHAPE_H_
