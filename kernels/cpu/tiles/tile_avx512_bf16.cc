// tile_kernel.h with VDPBF16PS: blocks of rows x panels in registers. Compiled for AVX512_BF16.
#include <immintrin.h>

#include "kernels/cpu/tiles/tile_kernel-inl.h"

namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

#define SRU_INLINE_LAMBDA __attribute__((always_inline))

template <int kValue>
struct Constant {
  constexpr operator int() const { return kValue; }  // NOLINT(google-explicit-constructor)
};

// Calls body(Constant<0>) to body(Constant<kCount - 1>): with constants from the start the compiler
// keeps arrays in registers, which it does not for a loop that it unrolls late.
template <int kCount, class Body>
HWY_INLINE void ForEach(Body body) {
  if constexpr (kCount > 0) {
    ForEach<kCount - 1>(body);
    body(Constant<kCount - 1>());
  }
}

struct Avx512Tiles {
  static void Begin() {}
  static void End() {}

  // Any number would do.
  template <int kPanels>
  static constexpr int Rows() {
    return kTileRows;
  }

  // The products fill the vector units, so that nothing is gained by interleaving.
  template <int kPanels, int kMatrices, class Between>
  static void Multiply(const BFloat16* x, size_t x_stride, int rows, const BFloat16* w,
                       size_t block_size, int k, float* u, size_t u_stride, Between&) {
    // Accumulators that leave registers for one pair of rows of each panel.
    constexpr int kPieceRows = 24 / kMatrices;
    for (int block = 0; block < kPanels / kMatrices; ++block) {
      for (int row = 0; row < rows; row += kPieceRows) {
        MultiplyRows<kPieceRows, kMatrices>(
            AtMost(kPieceRows, rows - row), x + row * x_stride, x_stride, w + block * block_size,
            k / 2, u + row * u_stride + static_cast<size_t>(block) * kMatrices * kTileColumns,
            u_stride);
      }
    }
  }

 private:
  // The first `rows` of kRows rows.
  template <int kRows, int kPanels>
  static void MultiplyRows(int rows, const BFloat16* x, size_t x_stride, const BFloat16* w,
                           int pairs, float* u, size_t u_stride) {
    if constexpr (kRows > 1) {
      if (rows < kRows) {
        return MultiplyRows<kRows - 1, kPanels>(rows, x, x_stride, w, pairs, u, u_stride);
      }
    }
    MultiplyAll<kRows, kPanels>(x, x_stride, w, pairs, u, u_stride);
  }

  template <int kRows, int kPanels>
  HWY_NOINLINE static void MultiplyAll(const BFloat16* x, size_t x_stride, const BFloat16* w,
                                       int pairs, float* u, size_t u_stride) {
    __m512 sums[kRows][kPanels];
    ForEach<kRows>([&](auto row) SRU_INLINE_LAMBDA {
      ForEach<kPanels>([&](auto panel)
                           SRU_INLINE_LAMBDA { sums[row][panel] = _mm512_setzero_ps(); });
    });
    for (int pair = 0; pair < pairs; ++pair) {
      __m512bh b[kPanels];
      ForEach<kPanels>([&](auto panel) SRU_INLINE_LAMBDA {
        b[panel] = reinterpret_cast<__m512bh>(_mm512_load_si512(w + panel * kTilePair));
      });
      ForEach<kRows>([&](auto row) SRU_INLINE_LAMBDA {
        int two;
        __builtin_memcpy(&two, x + row * x_stride, sizeof(two));
        const __m512bh a = reinterpret_cast<__m512bh>(_mm512_set1_epi32(two));
        ForEach<kPanels>([&](auto panel) SRU_INLINE_LAMBDA {
          sums[row][panel] = _mm512_dpbf16_ps(sums[row][panel], a, b[panel]);
        });
      });
      x += 2;
      w += kPanels * kTilePair;
    }
    ForEach<kRows>([&](auto row) SRU_INLINE_LAMBDA {
      ForEach<kPanels>([&](auto panel) SRU_INLINE_LAMBDA {
        _mm512_store_ps(u + row * u_stride + panel * kTileColumns, sums[row][panel]);
      });
    });
  }
};

void Product(const TileProductCall& call) { TileProduct<Avx512Tiles>(call); }
void Scan(const TileScanCall& call) { TileScan<Avx512Tiles>(call); }

}  // namespace
}  // namespace HWY_NAMESPACE

const TileKernel& Avx512TileKernel() {
  static constexpr TileKernel kKernel = {"AVX512_BF16 tiles", TileUnit::kAvx512,
                                         HWY_NAMESPACE::Product, HWY_NAMESPACE::Scan};
  return kKernel;
}

}  // namespace sru::kernels::cpu
