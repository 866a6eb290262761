// The kernel of tile_kernel.h over a policy of tile operations:
//
//   struct Tiles {
//     static void Begin();   // before the first product of a call
//     static void End();     // after the last
//     // Rows of one Multiply() with kPanels panels, a panel being 16 columns of one matrix.
//     template <int kPanels> static constexpr int Rows();
//     // u[row][panel][16] = x[row][k] * panels, for `rows` <= Rows() rows. Panel i begins at
//     // w + i / kMatrices * block_size + i % kMatrices * kTilePair, its pairs of k are
//     // kMatrices * kTilePair apart. Calls between(i, n) for i in 0..n-1 at n places where other
//     // work may be interleaved; a policy without such places does not call it.
//     template <int kPanels, int kMatrices, class Between>
//     static void Multiply(const BFloat16* x, size_t x_stride, int rows, const BFloat16* w,
//                          size_t block_size, int k, float* u, Between& between);
//   };
//
// Included once per target; it uses no template of the standard library, because the files that
// include it are compiled for instruction sets that not every machine has and the linker keeps one
// copy of a template for all. For the same reason each template here that is not always inlined has
// the policy, which differs from file to file, among its arguments.
#include "kernels/common/pooling.h"
#include "kernels/cpu/scan_math-inl.h"
#include "kernels/cpu/tile_kernel.h"

#if defined(SRU_KERNELS_CPU_TILE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SRU_KERNELS_CPU_TILE_KERNEL_INL_H_
#undef SRU_KERNELS_CPU_TILE_KERNEL_INL_H_
#else
#define SRU_KERNELS_CPU_TILE_KERNEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

// A chunk of rows of x stays in the second-level cache beside a block's weights.
constexpr size_t kTileChunkBytes = 256 * 1024;
// Rows of a chunk when products are looked up: all blocks of a row while its entry is in a cache.
constexpr int kLookupChunkRows = 64;
// With fewer sequences two blocks are multiplied and scanned together, so that at least a few
// chains of dependent steps overlap.
constexpr int kFewSequences = 4;

HWY_INLINE int AtMost(int a, int b) { return a < b ? a : b; }

// Scans rows whose U is in a buffer, in the direction's order of time.
template <class Tiles, Highway kHighway, Activation kActivation, int kMatrices, int kBlocks>
class RowScanner {
 public:
  static constexpr int kURow = kBlocks * kMatrices * kTileColumns;

  HWY_INLINE RowScanner(const TileScanCall& call, int block) : call_(call), block_(block) {
    for (int b = 0; b < kBlocks; ++b) {
      state_[b] = call.state + static_cast<size_t>(block + b) * call.sequences * kTileColumns;
    }
  }

  // The rows [row, row + rows), whose U is u[rows][block][matrix][16].
  HWY_INLINE void Start(const float* u, int row, int rows) {
    u_ = u;
    row_ = row;
    rows_ = rows;
    done_ = 0;
  }

  // The i-th of n parts of the rows.
  HWY_INLINE void operator()(int i, int n) { ScanUntil(rows_ * (i + 1) / n); }
  HWY_INLINE void Finish() { ScanUntil(rows_); }

  // One row with U at `u`.
  HWY_INLINE void ScanRow(int row, const float* u) {
    const int sequence = call_.place_of_row[row];
    for (int b = 0; b < kBlocks; ++b) {
      ScanBlock(row, sequence, b, u + b * kMatrices * kTileColumns);
    }
  }

 private:
  HWY_INLINE void ScanUntil(int end) {
    for (; done_ < end; ++done_) {
      const int index = call_.backward ? rows_ - 1 - done_ : done_;
      ScanRow(row_ + index, u_ + static_cast<size_t>(index) * kURow);
    }
  }

  HWY_INLINE void ScanBlock(int row, int sequence, int b, const float* HWY_RESTRICT u) {
    const D d;
    const ScanParameters& p = call_.scan;
    const size_t column = static_cast<size_t>(block_ + b) * kTileColumns;
    float* HWY_RESTRICT state = state_[b] + static_cast<size_t>(sequence) * kTileColumns;
    for (size_t j = 0; j < kTileColumns; j += hn::Lanes(d)) {
      const size_t at = column + j;
      V highway = hn::Zero(d);
      if constexpr (kHighway == Highway::kInput) {
        highway = hn::Mul(hn::Set(d, p.alpha),
                          LoadBFloat16(d, call_.highway + row * call_.highway_stride + at));
      } else if constexpr (kHighway == Highway::kMatrix) {
        highway = hn::Load(d, u + 3 * kTileColumns + j);
      }
      V c = hn::Load(d, state + j);
      const V h = ScanStep<kHighway, kActivation>(
          d, hn::Load(d, p.v_f + at), hn::Load(d, p.v_r + at), hn::Load(d, p.b_f + at),
          hn::Load(d, p.b_r + at), hn::Load(d, u + j), hn::Load(d, u + kTileColumns + j),
          hn::Load(d, u + 2 * kTileColumns + j), highway, c);
      hn::Store(c, d, state + j);
      if (call_.h != nullptr) StoreBFloat16(d, h, call_.h + row * call_.h_stride + at);
      if (call_.h_of_row != nullptr && call_.h_of_row[row] != nullptr) StoreOutput(d, h, row, at);
      if (call_.pooling != nullptr) Pool(d, h, row, sequence, at);
    }
  }

  HWY_INLINE void StoreOutput(D d, V h, int row, size_t at) {
    const size_t hidden = static_cast<size_t>(call_.hidden);
    float* to = call_.h_of_row[row] + call_.h_column + at;
    if (at + hn::Lanes(d) <= hidden) {
      hn::StoreU(h, d, to);
      return;
    }
    HWY_ALIGN float values[kTileColumns];
    hn::Store(h, d, values);
    for (size_t i = 0; at + i < hidden; ++i) to[i] = values[i];
  }

  HWY_INLINE void Pool(D d, V h, int row, int sequence, size_t at) {
    if (call_.pooled[sequence] == nullptr) return;
    const Pooling pooling = PoolingInTime(call_.pooling[sequence], call_.backward);
    // The first tokens of all sequences are the first rows. Going backward, PoolingInTime() leaves
    // no pooling that asks for the first step.
    const bool first = row < call_.sequences;
    float* to = call_.pooled[sequence] + call_.pooled_column + at;
    const V steps[1] = {h};
    V pool[1] = {hn::Load(d, to)};
    PoolStep<1>(pooling, first, steps, pool);
    hn::Store(pool[0], d, to);
  }

  const TileScanCall& call_;
  const int block_;
  float* state_[kBlocks];
  const float* u_ = nullptr;
  int row_ = 0;
  int rows_ = 0;
  int done_ = 0;
};

// Products and scan of the rows [begin, end). While one piece of rows is multiplied, the piece
// before it is scanned.
template <class Tiles, Highway kHighway, Activation kActivation, int kMatrices, int kBlocks>
HWY_NOINLINE void ScanProducts(const TileScanCall& call, int block, int begin, int end) {
  constexpr int kPanels = kMatrices * kBlocks;
  constexpr int kRows = Tiles::template Rows<kPanels>();
  HWY_ALIGN_MAX float u[2][kRows * kPanels * kTileColumns];
  const size_t block_size = call.weights.block_size();
  const BFloat16* w = call.weights.values + block * block_size;
  RowScanner<Tiles, kHighway, kActivation, kMatrices, kBlocks> scanner(call, block);
  int piece = 0;
  for (int done = begin; done < end; done += kRows, ++piece) {
    const int rows = AtMost(kRows, end - done);
    const int row = call.backward ? begin + end - done - rows : done;
    Tiles::template Multiply<kPanels, kMatrices>(call.x + row * call.x_stride, call.x_stride, rows,
                                                 w, block_size, call.weights.k, u[piece % 2],
                                                 scanner);
    scanner.Finish();
    scanner.Start(u[piece % 2], row, rows);
  }
  scanner.Finish();
}

template <class Tiles, Highway kHighway, Activation kActivation, int kMatrices>
HWY_NOINLINE void ScanLookups(const TileScanCall& call, int block, int begin, int end) {
  RowScanner<Tiles, kHighway, kActivation, kMatrices, 1> scanner(call, block);
  const float* table = call.table + static_cast<size_t>(block) * kMatrices * kTileColumns;
  const size_t stride = call.weights.row_size();
  for (int i = 0; i < end - begin; ++i) {
    const int row = call.backward ? end - 1 - i : begin + i;
    scanner.ScanRow(row, table + call.token_of_row[row] * stride);
  }
}

template <class Tiles, Highway kHighway, Activation kActivation>
HWY_INLINE void ScanCall(const TileScanCall& call) {
  constexpr int kMatrices = kHighway == Highway::kMatrix ? 4 : 3;
  const bool looked_up = call.table != nullptr;
  int chunk = kLookupChunkRows;
  if (!looked_up) {
    constexpr int kLeast = 4 * kTileRows;
    chunk = static_cast<int>(kTileChunkBytes / (call.x_stride * sizeof(BFloat16))) / 32 * 32;
    if (chunk < kLeast) chunk = kLeast;
  }
  for (int done = 0; done < call.rows; done += chunk) {
    const int rows = AtMost(chunk, call.rows - done);
    const int begin = call.backward ? call.rows - done - rows : done;
    int block = call.first_block;
    if (looked_up) {
      for (; block < call.last_block; ++block) {
        ScanLookups<Tiles, kHighway, kActivation, kMatrices>(call, block, begin, begin + rows);
      }
    }
    if constexpr (kMatrices == 3) {
      for (; call.sequences < kFewSequences && block + 1 < call.last_block; block += 2) {
        ScanProducts<Tiles, kHighway, kActivation, kMatrices, 2>(call, block, begin, begin + rows);
      }
    }
    for (; block < call.last_block; ++block) {
      ScanProducts<Tiles, kHighway, kActivation, kMatrices, 1>(call, block, begin, begin + rows);
    }
  }
}

template <class Tiles>
struct TileScanVariant {
  template <Highway kHighway, Activation kActivation>
  HWY_INLINE static void Run(const TileScanCall& call) {
    ScanCall<Tiles, kHighway, kActivation>(call);
  }
};

template <class Tiles>
HWY_INLINE void TileScan(const TileScanCall& call) {
  if (call.table == nullptr) Tiles::Begin();
  DispatchScan<TileScanVariant<Tiles>>(call.scan, call);
  if (call.table == nullptr) Tiles::End();
}

struct NothingBetween {
  HWY_INLINE void operator()(int, int) {}
};

template <class Tiles, int kMatrices, int kBlocks>
HWY_NOINLINE void ProductBlocks(const TileProductCall& call, int block) {
  constexpr int kPanels = kMatrices * kBlocks;
  constexpr int kRows = Tiles::template Rows<kPanels>();
  HWY_ALIGN_MAX float u[kRows * kPanels * kTileColumns];
  const size_t block_size = call.weights.block_size();
  NothingBetween nothing;
  for (int row = 0; row < call.rows; row += kRows) {
    const int rows = AtMost(kRows, call.rows - row);
    Tiles::template Multiply<kPanels, kMatrices>(call.x + row * call.x_stride, call.x_stride, rows,
                                                 call.weights.values + block * block_size,
                                                 block_size, call.weights.k, u, nothing);
    for (int r = 0; r < rows; ++r) {
      for (int panel = 0; panel < kPanels; ++panel) {
        const size_t column = (static_cast<size_t>(block) * kMatrices + panel) * kTileColumns;
        if (column >= call.y_stride) break;
        const float* from = u + (static_cast<size_t>(r) * kPanels + panel) * kTileColumns;
        float* to = call.y + (row + r) * call.y_stride + column;
        for (int i = 0; i < kTileColumns; ++i) to[i] = from[i];
      }
    }
  }
}

template <class Tiles>
HWY_INLINE void TileProduct(const TileProductCall& call) {
  Tiles::Begin();
  int block = 0;
  for (; block < call.weights.blocks && call.weights.matrices == 4; ++block) {
    ProductBlocks<Tiles, 4, 1>(call, block);
  }
  for (; call.two_blocks && block + 1 < call.weights.blocks; block += 2) {
    ProductBlocks<Tiles, 3, 2>(call, block);
  }
  for (; block < call.weights.blocks; ++block) ProductBlocks<Tiles, 3, 1>(call, block);
  Tiles::End();
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
