// Launch shapes of the kernels that work on rows.
#ifndef SRU_KERNELS_CUDA_KERNELS_ROWS_SHAPE_H_
#define SRU_KERNELS_CUDA_KERNELS_ROWS_SHAPE_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/kernels/kernel_args.h"

namespace sru::kernels::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr int kWarpSize = 32;
inline constexpr int kRowWarps = kRowThreads / kWarpSize;
// What a thread of the embedding kernel makes.
inline constexpr int kEmbedBytes = 16;

// Adjacent dimensions of a thread of the pooling kernel, and rows that it reads at a time.
inline constexpr int kPoolDims = 2;
inline constexpr int kPoolRows = 8;

inline constexpr int64_t Blocks(int64_t threads) {
  return (threads + kRowThreads - 1) / kRowThreads;
}

inline int64_t EmbedBlocks(const EmbedArgs& args, size_t value_bytes) {
  return Blocks(args.max_tokens *
                static_cast<int64_t>(args.segments * args.padded * value_bytes / kEmbedBytes));
}
// A warp per row.
inline int64_t LayerNormBlocks(const LayerNormArgs& args) {
  return Blocks(int64_t{args.max_tokens} * kWarpSize);
}
inline int PoolBlocksPerSequence(const PoolArgs& args) {
  return static_cast<int>(Blocks(args.segments * args.padded / kPoolDims));
}
inline int64_t PoolBlocks(const PoolArgs& args) {
  return int64_t{args.num_sequences} * PoolBlocksPerSequence(args);
}
inline int64_t HeadBlocks(const HeadArgs& args) { return args.num_sequences; }
inline int64_t CompareBlocks(const CompareArgs& args) {
  return Blocks(int64_t{args.rows} * args.words_per_row);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_ROWS_SHAPE_H_
