// How the products and the scan of tile_kernel.h are arranged, which decides how well one hides behind
// the other. Results do not depend on it. tile_arrangement.cc is a table of the best ones.
#ifndef SRU_KERNELS_CPU_TILES_TILE_ARRANGEMENT_H_
#define SRU_KERNELS_CPU_TILES_TILE_ARRANGEMENT_H_

namespace sru::kernels::cpu {

// The units that multiply. The emulation of AMX is arranged as AMX.
enum class TileUnit { kAvx512, kAmx };

inline constexpr int kMostPieceRows = 64;
// Places of one step of the products (kTileDepth of k) where rows of the scan can stand.
inline constexpr int kMostPlaces = 3;

struct TileArrangement {
  // Of one piece: 16, 32 or 64. While a piece is multiplied, the one before it is scanned; U of both is in
  // the first-level cache.
  int rows = 32;
  // Blocks of 16 columns that are multiplied and scanned together: 1, 2 or 4, the rows times the blocks
  // being at most kMostPieceRows. The chains of dependent steps of several blocks overlap. Layers with
  // four matrices have one.
  int blocks = 1;
  // Per step of the products: 0 scans after the products of the next piece, 1 after each of their steps,
  // 3 after every second tile product. Without meaning where the unit does not interleave (kAvx512): 0.
  int places = 0;
  // Rows are taken in chunks of this size, of which all blocks are done before the next, so that x stays in
  // the second-level cache.
  int chunk_kib = 256;
};

inline bool operator==(const TileArrangement& a, const TileArrangement& b) {
  return a.rows == b.rows && a.blocks == b.blocks && a.places == b.places &&
         a.chunk_kib == b.chunk_kib;
}

// The table's, for products of `k` input columns and a batch of `sequences`.
TileArrangement ChooseTileArrangement(TileUnit unit, int k, int sequences);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_TILES_TILE_ARRANGEMENT_H_
