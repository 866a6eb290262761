// On x86 compiled for AVX2.
#define HWY_COMPILE_ONLY_STATIC
#include "tests/testing/emulated_tiles.h"

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/tiles/tile_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {
namespace {

struct EmulatedTiles {
  static void Begin() {}
  static void End() {}

  // Two groups of 16 rows by three panels, or one group by up to six.
  template <int kPanels>
  static constexpr int Rows() {
    return kPanels == 3 ? 2 * kTileRows : kTileRows;
  }

  template <int kPanels, int kMatrices, class Between>
  static void Multiply(const BFloat16* x, size_t x_stride, int rows, const BFloat16* w,
                       size_t block_size, int k, float* u, size_t u_stride, Between& between) {
    const int steps = k / kTileDepth;
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < kPanels * kTileColumns; ++i) u[row * u_stride + i] = 0.0f;
    }
    for (int step = 0; step < steps; ++step) {
      for (int panel = 0; panel < kPanels; ++panel) {
        const BFloat16* b = w + panel / kMatrices * block_size + panel % kMatrices * kTilePair +
                            static_cast<size_t>(step) * kTileDepth / 2 * kMatrices * kTilePair;
        for (int row = 0; row < rows; ++row) {
          MultiplyRow(x + row * x_stride + step * kTileDepth, b, kMatrices * kTilePair,
                      u + row * u_stride + static_cast<size_t>(panel) * kTileColumns);
        }
      }
      for (int place = 0; place < kMostPlaces; ++place) between();
    }
  }

 private:
  // TDPBF16PS of one row: the even and the odd values of k are summed apart, then both sums are
  // added to the accumulator. A product of two bfloat16 values is exact in float32.
  static void MultiplyRow(const BFloat16* a, const BFloat16* b, size_t b_stride, float* c) {
    float even[kTileColumns] = {};
    float odd[kTileColumns] = {};
    for (int pair = 0; pair < kTileDepth / 2; ++pair) {
      const float a_even = ToFloat(a[2 * pair]);
      const float a_odd = ToFloat(a[2 * pair + 1]);
      const BFloat16* b_pair = b + pair * b_stride;
      for (int n = 0; n < kTileColumns; ++n) {
        even[n] += a_even * ToFloat(b_pair[2 * n]);
        odd[n] += a_odd * ToFloat(b_pair[2 * n + 1]);
      }
    }
    for (int n = 0; n < kTileColumns; ++n) c[n] += even[n] + odd[n];
  }
};

void Product(const TileProductCall& call) { TileProduct<EmulatedTiles>(call); }
void Scan(const TileScanCall& call) { TileScan<EmulatedTiles>(call); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

namespace sru::kernels::cpu {

const TileKernel& EmulatedTileKernel() {
  static constexpr TileKernel kKernel = {"emulated AMX tiles", TileUnit::kAmx,
                                         HWY_NAMESPACE::Product, HWY_NAMESPACE::Scan};
  return kKernel;
}

}  // namespace sru::kernels::cpu
