// How the products and the scan of tile_kernel.h are arranged, which decides how well one hides
// behind the other. Results do not depend on it.
#ifndef SRU_KERNELS_CPU_TILES_TILE_ARRANGEMENT_H_
#define SRU_KERNELS_CPU_TILES_TILE_ARRANGEMENT_H_

namespace sru::kernels::cpu {

// The units that multiply. The emulation of AMX is arranged as AMX.
enum class TileUnit { kAvx512, kAmx };

inline constexpr int kMostPieceRows = 64;
// Places of one step of the products (kTileDepth of k) where rows of the scan can stand.
inline constexpr int kMostPlaces = 3;

struct TileArrangement {
  // Of one piece: 16, 32 or 64. While a piece is multiplied, the one before it is scanned; U of
  // both is in the first-level cache.
  int rows = 32;
  // Blocks of 16 columns that are multiplied and scanned together: 1, 2 or 4, the rows times the
  // blocks being at most kMostPieceRows. The chains of dependent steps of several blocks overlap.
  // Layers with four matrices have one.
  int blocks = 1;
  // Per step of the products: 0 scans after the products of the next piece, 1 after each of their
  // steps, 3 after every second tile product. Without meaning where the unit does not interleave
  // (kAvx512): 0.
  int places = 0;
};

// The arrangement for a batch of so many sequences.
inline TileArrangement ChooseTileArrangement(TileUnit unit, int sequences) {
  const int places = unit == TileUnit::kAmx ? 1 : 0;
  // Of one to three sequences each step depends on the one before it. Measured on Zen 4 with one
  // sequence of 32 tokens, layer / oneDNN's products with 1, 2 and 4 blocks: 1 x 64 1.68, 1.42,
  // 1.33; 2 x 64 1.36, 1.22, 1.18; 2 x 128 1.20, 1.12, 1.08; 2 x 256 1.09, 1.05, 1.04.
  if (sequences <= 3) return {16, 4, places};
  // More sequences overlap by themselves: on Zen 4 pieces of 16, 32 and 64 rows are within what
  // measurements of them differ by, 1.22 to 1.24 at 2 x 64. On AMX 0.99 to 1.09 of oneDNN's
  // products at 2 x 256, 0.88 at 2 x 512, 32 sequences.
  return {32, 1, places};
}

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_TILES_TILE_ARRANGEMENT_H_
