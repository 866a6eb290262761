// The sizes that the CPU backend packs weights and computes rows in, which decide how much memory
// it takes. kernels/model_sizes.h counts with the same ones.
#ifndef SRU_KERNELS_CPU_BASE_BLOCK_SIZES_H_
#define SRU_KERNELS_CPU_BASE_BLOCK_SIZES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace sru::kernels::cpu {

// Bytes of a product of some rows: a part of the second-level cache, so that the scan finds U of
// one chunk of tokens there.
inline constexpr size_t kChunkBytes = 256 * 1024;
inline constexpr int kMinChunkRows = 32;
// Most rows of a chunk: products read and write up to this many rows past the last token.
inline constexpr int kMaxChunkRows = 256;
// Rows of a chunk whose product has this many columns.
constexpr int ChunkRows(int columns) {
  const int rows = static_cast<int>(kChunkBytes / (sizeof(float) * columns)) / 16 * 16;
  return std::clamp(rows, kMinChunkRows, kMaxChunkRows);
}

// Dimensions of a part of a layer: wide enough for products at full speed.
inline constexpr int kPartSize = 128;

// Pooled vectors that a classifier multiplies at a time: this many rows past the last are read.
inline constexpr int kClassifierRows = 64;

// Most threads that work on one operation of a program, so that a workspace needs memory for so
// many only.
inline constexpr int kMaxProgramThreads = 4;

// Columns of a block of a program's product: wide enough for products at full speed.
inline constexpr int kBlockColumns = 512;
// Several blocks read their weights once for each group of rows, from memory when there are many.
inline constexpr int kGroupRows = 512;

// Positions whose sinusoids are computed at load; those of later ones are computed when they occur.
inline constexpr int64_t kTablePositions = 1024;

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_BLOCK_SIZES_H_
