// tile_kernel.h on the tile unit of AMX. Compiled for AMX_BF16.
#include <immintrin.h>

#include "kernels/cpu/tiles/tile_kernel-inl.h"

namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

// Tiles 0 to 5 are accumulators, 6 holds rows of x, 7 weights. The intrinsics take the tiles'
// numbers as literals, so they are written out.
struct AmxTiles {
  // Eight tiles of 16 rows of 64 bytes.
  struct alignas(64) Configuration {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {kTileRows, kTileRows, kTileRows, kTileRows,
                        kTileRows, kTileRows, kTileRows, kTileRows};
  };
  static_assert(sizeof(Configuration) == 64);

  // From read-only memory: GCC 12's _tile_loadconfig() tells the compiler of 8 bytes that it reads,
  // so that stores to the rest of a local one may be dropped.
  static void Begin() {
    static constexpr Configuration kConfiguration;
    _tile_loadconfig(&kConfiguration);
  }
  static void End() { _tile_release(); }

  // Two groups of 16 rows by three panels, or one group by up to six.
  template <int kPanels>
  static constexpr int Rows() {
    return kPanels == 3 ? 2 * kTileRows : kTileRows;
  }

  template <int kPanels, int kMatrices, class Between>
  HWY_INLINE static void Multiply(const BFloat16* x, size_t x_stride, int rows, const BFloat16* w,
                                  size_t block_size, int k, float* u, size_t u_stride,
                                  Between& between) {
    static_assert(kPanels == 3 || kPanels == 4 || kPanels == 6, "arrangements of six tiles");
    const int steps = k / kTileDepth;
    const size_t row_bytes = x_stride * sizeof(BFloat16);
    const size_t u_row_bytes = u_stride * sizeof(float);
    constexpr size_t kPairBytes = kMatrices * kTilePair * sizeof(BFloat16);
    constexpr size_t kStep = static_cast<size_t>(kTileDepth) / 2 * kMatrices * kTilePair;
    if (kPanels == 3 && rows > kTileRows) {
      const BFloat16* second = x + kTileRows * x_stride;
      Zero<6>();
      for (int step = 0; step < steps; ++step) {
        const BFloat16* b = w + step * kStep;
        MultiplyTwo(x + step * kTileDepth, row_bytes, b, kPairBytes);
        between();
        _tile_loadd(7, b + 2 * kTilePair, kPairBytes);
        _tile_dpbf16ps(2, 6, 7);
        _tile_loadd(6, second + step * kTileDepth, row_bytes);
        _tile_dpbf16ps(5, 6, 7);
        between();
        _tile_loadd(7, b + kTilePair, kPairBytes);
        _tile_dpbf16ps(4, 6, 7);
        _tile_loadd(7, b, kPairBytes);
        _tile_dpbf16ps(3, 6, 7);
        between();
      }
      float* lower = u + kTileRows * u_stride;
      StoreThree(u, u_row_bytes);
      _tile_stored(3, lower, u_row_bytes);
      _tile_stored(4, lower + kTileColumns, u_row_bytes);
      _tile_stored(5, lower + 2 * kTileColumns, u_row_bytes);
      return;
    }
    Zero<kPanels>();
    for (int step = 0; step < steps; ++step) {
      const BFloat16* b = w + step * kStep;
      MultiplyTwo(x + step * kTileDepth, row_bytes, b, kPairBytes);
      between();
      _tile_loadd(7, b + 2 * kTilePair, kPairBytes);
      _tile_dpbf16ps(2, 6, 7);
      if constexpr (kPanels == 4) {
        _tile_loadd(7, b + 3 * kTilePair, kPairBytes);
        _tile_dpbf16ps(3, 6, 7);
      }
      if constexpr (kPanels == 6) {
        const BFloat16* next = b + block_size;
        _tile_loadd(7, next, kPairBytes);
        _tile_dpbf16ps(3, 6, 7);
        between();
        _tile_loadd(7, next + kTilePair, kPairBytes);
        _tile_dpbf16ps(4, 6, 7);
        _tile_loadd(7, next + 2 * kTilePair, kPairBytes);
        _tile_dpbf16ps(5, 6, 7);
      } else {
        between();
      }
      between();
    }
    StoreThree(u, u_row_bytes);
    if constexpr (kPanels >= 4) _tile_stored(3, u + 3 * kTileColumns, u_row_bytes);
    if constexpr (kPanels == 6) {
      _tile_stored(4, u + 4 * kTileColumns, u_row_bytes);
      _tile_stored(5, u + 5 * kTileColumns, u_row_bytes);
    }
  }

 private:
  // What all shapes begin with: the products of 16 rows of x with two panels, in tiles 0 and 1.
  HWY_INLINE static void MultiplyTwo(const BFloat16* x, size_t x_row_bytes, const BFloat16* w,
                                     size_t w_row_bytes) {
    _tile_loadd(6, x, x_row_bytes);
    _tile_loadd(7, w, w_row_bytes);
    _tile_dpbf16ps(0, 6, 7);
    _tile_loadd(7, w + kTilePair, w_row_bytes);
    _tile_dpbf16ps(1, 6, 7);
  }
  HWY_INLINE static void StoreThree(float* u, size_t u_row_bytes) {
    _tile_stored(0, u, u_row_bytes);
    _tile_stored(1, u + kTileColumns, u_row_bytes);
    _tile_stored(2, u + 2 * kTileColumns, u_row_bytes);
  }

  template <int kTiles>
  HWY_INLINE static void Zero() {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    if constexpr (kTiles >= 4) _tile_zero(3);
    if constexpr (kTiles == 6) {
      _tile_zero(4);
      _tile_zero(5);
    }
  }
};

void Product(const TileProductCall& call) { TileProduct<AmxTiles>(call); }
void Scan(const TileScanCall& call) { TileScan<AmxTiles>(call); }

}  // namespace
}  // namespace HWY_NAMESPACE

const TileKernel& AmxTileKernel() {
  static constexpr TileKernel kKernel = {"AMX tiles", TileUnit::kAmx, HWY_NAMESPACE::Product,
                                         HWY_NAMESPACE::Scan};
  return kKernel;
}

}  // namespace sru::kernels::cpu
