// tile_kernel.h with the tile operations of AMX in plain C++.
#include "kernels/cpu/bfloat16.h"
#include "kernels/cpu/tile_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_emulated.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/tile_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

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

void EmulatedProduct(const TileProductCall& call) { TileProduct<EmulatedTiles>(call); }
void EmulatedScan(const TileScanCall& call) { TileScan<EmulatedTiles>(call); }

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {

HWY_EXPORT(EmulatedProduct);
HWY_EXPORT(EmulatedScan);

const TileKernel& EmulatedTileKernel() {
  static constexpr TileKernel kKernel = {"emulated AMX tiles", TileUnit::kAmx,
                                         [](const TileProductCall& call) {
                                           HWY_DYNAMIC_DISPATCH(EmulatedProduct)
                                           (call);
                                         },
                                         [](const TileScanCall& call) {
                                           HWY_DYNAMIC_DISPATCH(EmulatedScan)
                                           (call);
                                         }};
  return kKernel;
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
