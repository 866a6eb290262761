// Products in bfloat16 by tiles of 16 rows x 16 columns, with the scan interleaved: U of a few rows
// and 16 dimensions stays in a double buffer in the first-level cache and is never stored
// elsewhere.
//
// Rows are in packed order: all sequences' first tokens, then all second tokens and so on, the
// sequences sorted by length, longest first, so that the rows of each step are a prefix of the
// sequences. A tile is 16 adjacent rows whatever they are: of 32 sequences it holds one time step,
// of a single one 16 steps, and ragged batches waste nothing.
//
// A row's sums are added in the same order at any place and in every arrangement
// (tile_arrangement.h), so its bits depend on nothing else.
#ifndef SRU_KERNELS_CPU_TILES_TILE_KERNEL_H_
#define SRU_KERNELS_CPU_TILES_TILE_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/scan.h"
#include "kernels/cpu/tiles/tile_arrangement.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cpu {

inline constexpr int kTileRows = 16;
inline constexpr int kTileColumns = 16;
inline constexpr int kTileDepth = 32;               // of k, per tile operation
inline constexpr int kTilePair = 2 * kTileColumns;  // weights of two values of k
// Rows of an input that a kernel may read, and not use, past the last.
inline constexpr int kTileSpareRows = 2 * kTileRows;

// Weights: [block][pair of k][matrix][column][2]. A block is 16 columns of each of 3 or 4 matrices,
// which are multiplied together and read from memory in one stream.
struct TileWeights {
  int k = 0;  // a multiple of kTileDepth
  int blocks = 0;
  int matrices = 3;  // 3 or 4
  const BFloat16* values = nullptr;

  size_t block_size() const { return static_cast<size_t>(k) * matrices * kTileColumns; }
  // Columns of a row of the product: [block][matrix][16].
  size_t row_size() const { return static_cast<size_t>(blocks) * matrices * kTileColumns; }
};

// y = x w, in float32.
struct TileProductCall {
  TileWeights weights;
  const BFloat16* x = nullptr;  // [rows + kTileSpareRows][x_stride]
  size_t x_stride = 0;
  int rows = 0;
  float* y = nullptr;       // [rows][y_stride]; columns past y_stride are dropped
  size_t y_stride = 0;      // a multiple of 16
  bool two_blocks = false;  // multiplied together, as arrangements with several do; for tests
};

// One direction of one layer, a range of its blocks, over all rows of a batch.
struct TileScanCall {
  TileArrangement arrangement;
  TileWeights weights;  // matrices U0 U1 U2 [U3]
  ScanParameters scan;  // of all blocks
  int hidden = 0;       // without padding
  bool backward = false;
  int first_block = 0;
  int last_block = 0;  // exclusive

  int rows = 0;
  int sequences = 0;
  const int32_t* place_of_row = nullptr;  // [row]: its sequence's place in the order of length

  // Either the product's input, or the products of each token to look up.
  const BFloat16* x = nullptr;  // [rows + kTileSpareRows][x_stride]
  size_t x_stride = 0;
  const float* table = nullptr;           // [token][weights.row_size()]
  const int32_t* token_of_row = nullptr;  // [rows]

  // What the highway carries, [rows][highway_stride], from this direction's first column on.
  const BFloat16* highway = nullptr;
  size_t highway_stride = 0;
  float* state = nullptr;  // [block][sequences][16], in and out

  // Where h goes; each may be null.
  BFloat16* h = nullptr;  // [rows][h_stride], from this direction's first column on
  size_t h_stride = 0;
  float* const* h_of_row = nullptr;  // [rows], unpadded, of the whole row; entries may be null
  size_t h_column = 0;               // this direction's first column there
  const Pooling* pooling = nullptr;  // [sequences]
  float* const* pooled = nullptr;    // [sequences], padded; null where pooling is kNone
  size_t pooled_column = 0;
};

// Functions compiled for one kind of tile operation.
struct TileKernel {
  const char* name;
  TileUnit unit;
  void (*product)(const TileProductCall& call);
  void (*scan)(const TileScanCall& call);
};

// The tile unit of AMX (TDPBF16PS). Call only where HasAmx() (cpu_isa.h).
const TileKernel& AmxTileKernel();
// Register blocks with AVX512_BF16 (VDPBF16PS). Call only where HasAvx512Bf16().
const TileKernel& Avx512TileKernel();

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_TILES_TILE_KERNEL_H_
