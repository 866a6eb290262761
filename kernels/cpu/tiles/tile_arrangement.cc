#include "kernels/cpu/tiles/tile_arrangement.h"

#include <limits>

namespace sru::kernels::cpu {
namespace {

struct Row {
  TileUnit unit;
  int most_k;          // of the products' input columns
  int most_sequences;  // of the batch
  TileArrangement arrangement;
};

constexpr int kAny = std::numeric_limits<int>::max();

// The first row of the unit that k and the number of sequences do not exceed holds: rows, blocks, places,
// KiB of a chunk.
constexpr Row kTable[] = {
    // AMX: chosen by calculation, not measured, except where it says so. A tile product takes 16 cycles,
    // so a piece of 32 rows and one block takes 3 k; the scan takes about 25 cycles a row and block, 800 a
    // piece. Tile products of one step that head the reorder window (512 operations, 8 to 10 rows of
    // scan) hold it up for 45 + 6 * 16 + 52 cycles of load, products and latency, about as long as the
    // scan that fits into it; two of them hold it up for 130. So where the scan takes as long as the
    // products, rows of the scan stand after every second product.
    //
    // One to three sequences: a step depends on the one before it, for about 57 cycles, longer than the
    // vector units need for two blocks.
    {TileUnit::kAmx, 256, 3, {16, 4, 3, 256}},
    // The products, 96 cycles a step for two blocks of 16 rows, take longer than 16 dependent steps.
    {TileUnit::kAmx, kAny, 3, {16, 2, 1, 256}},
    // The scan takes two to four times as long as the products, so that what delays it counts: its
    // first row waits for the tiles that were stored just before. Pieces of 64 rows do so half as
    // often; U of two of them, the weights of a block and the rows of x are within 48 KB.
    {TileUnit::kAmx, 128, kAny, {64, 1, 3, 256}},
    // Products and scan take equally long. Longer pieces would drive the weights from the first-level cache.
    {TileUnit::kAmx, 256, kAny, {32, 1, 3, 256}},
    // The products decide. Measured: 0.99 to 1.09 of oneDNN's products at 2 x 256, 0.88 at 2 x 512, 32
    // sequences.
    {TileUnit::kAmx, kAny, kAny, {32, 1, 1, 256}},

    // AVX512_BF16: products and scan share the vector units, so that only dependent steps and caches count.
    //
    // One to three sequences: chains of dependent steps of four blocks overlap. Measured on Zen 4, one
    // sequence of 32 tokens, layer / oneDNN's products with 1, 2 and 4 blocks: 1 x 64 1.68, 1.42, 1.33;
    // 2 x 64 1.36, 1.22, 1.18; 2 x 128 1.20, 1.12, 1.08; 2 x 256 1.09, 1.05, 1.04.
    {TileUnit::kAvx512, kAny, 3, {16, 4, 0, 256}},
    // More sequences overlap by themselves: pieces of 16, 32 and 64 rows are within what measurements of
    // them differ by, 1.22 to 1.24 at 2 x 64.
    {TileUnit::kAvx512, kAny, kAny, {32, 1, 0, 256}},
};

}  // namespace

TileArrangement ChooseTileArrangement(TileUnit unit, int k, int sequences) {
  for (const Row& row : kTable) {
    if (row.unit == unit && k <= row.most_k && sequences <= row.most_sequences) {
      return row.arrangement;
    }
  }
  return TileArrangement();
}

}  // namespace sru::kernels::cpu
