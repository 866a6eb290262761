// tile_kernel.h with VDPBF16PS: blocks of rows x panels in registers. Compiled for AVX512_BF16.
#include <immintrin.h>

#include "kernels/cpu/tile_kernel-inl.h"

namespace sru::kernels {
namespace HWY_NAMESPACE {
namespace {

struct Avx512Tiles {
  static constexpr bool kPairsBlocks = true;

  static void Begin() {}
  static void End() {}

  // As many accumulators as leave registers for one pair of rows of each panel: 24 of 32.
  template <int kPanels>
  static constexpr int Rows() {
    return 24 / kPanels;
  }

  // The products fill the vector units, so that nothing is gained by interleaving.
  template <int kPanels, int kMatrices, class Between>
  static void Multiply(const BFloat16* x, size_t x_stride, int rows, const BFloat16* w,
                       size_t block_size, int k, float* u, Between&) {
    MultiplyRows<Rows<kPanels>(), kPanels, kMatrices>(x, x_stride, rows, w, block_size, k, u);
  }

 private:
  template <int kRows, int kPanels, int kMatrices>
  static void MultiplyRows(const BFloat16* x, size_t x_stride, int rows, const BFloat16* w,
                           size_t block_size, int k, float* u) {
    if constexpr (kRows > 1) {
      if (rows < kRows) {
        return MultiplyRows<kRows - 1, kPanels, kMatrices>(x, x_stride, rows, w, block_size, k, u);
      }
    }
    MultiplyAll<kRows, kPanels, kMatrices>(x, x_stride, w, block_size, k, u);
  }

  template <int kRows, int kPanels, int kMatrices>
  HWY_NOINLINE static void MultiplyAll(const BFloat16* x, size_t x_stride, const BFloat16* w,
                                       size_t block_size, int k, float* u) {
    constexpr int kPairs = kTileDepth / 2;
    __m512 sums[kRows][kPanels];
    for (int row = 0; row < kRows; ++row) {
      for (int panel = 0; panel < kPanels; ++panel) sums[row][panel] = _mm512_setzero_ps();
    }
    for (int step = 0; step < k / kTileDepth; ++step) {
      for (int pair = 0; pair < kPairs; ++pair) {
        __m512bh b[kPanels];
        for (int panel = 0; panel < kPanels; ++panel) {
          b[panel] = reinterpret_cast<__m512bh>(_mm512_load_si512(
              w + panel / kMatrices * block_size + panel % kMatrices * kTileValues +
              static_cast<size_t>(pair) * 2 * kTileColumns));
        }
        for (int row = 0; row < kRows; ++row) {
          int two;
          __builtin_memcpy(&two, x + row * x_stride + 2 * pair, sizeof(two));
          const __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(two));
          for (int panel = 0; panel < kPanels; ++panel) {
            sums[row][panel] = _mm512_dpbf16_ps(sums[row][panel], a, b[panel]);
          }
        }
      }
      x += kTileDepth;
      w += kMatrices * kTileValues;
    }
    for (int row = 0; row < kRows; ++row) {
      for (int panel = 0; panel < kPanels; ++panel) {
        _mm512_store_ps(u + (row * kPanels + panel) * kTileColumns, sums[row][panel]);
      }
    }
  }
};

void Product(const TileProductCall& call) { TileProduct<Avx512Tiles>(call); }
void Scan(const TileScanCall& call) { TileScan<Avx512Tiles>(call); }

}  // namespace
}  // namespace HWY_NAMESPACE

const TileKernel& Avx512TileKernel() {
  static constexpr TileKernel kKernel = {"AVX512_BF16 tiles", HWY_NAMESPACE::Product,
                                         HWY_NAMESPACE::Scan};
  return kKernel;
}

}  // namespace sru::kernels
