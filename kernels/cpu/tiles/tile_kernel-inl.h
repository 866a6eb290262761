// The kernel of tile_kernel.h over a policy of tile operations:
//
//   struct Tiles {
//     static void Begin();   // before the first product of a call
//     static void End();     // after the last
//     // Rows of one Multiply() with kPanels panels, a panel being 16 columns of one matrix.
//     template <int kPanels> static constexpr int Rows();
//     // u[row][panel][16] = x[row][k] * panels, for `rows` <= Rows() rows; rows of u are u_stride
//     // apart. Panel i begins at w + i / kMatrices * block_size + i % kMatrices * kTilePair, its
//     // pairs of k are kMatrices * kTilePair apart. Calls between() at kMostPlaces places of each
//     // step of kTileDepth of k, where other work may be interleaved; a policy whose unit does not
//     // interleave does not call it.
//     template <int kPanels, int kMatrices, class Between>
//     static void Multiply(const BFloat16* x, size_t x_stride, int rows, const BFloat16* w,
//                          size_t block_size, int k, float* u, size_t u_stride, Between& between);
//   };
//
// Included once per target; it uses no template of the standard library, because the files that
// include it are compiled for instruction sets that not every machine has and the linker keeps one
// copy of a template for all. For the same reason each template here that is not always inlined has
// the policy, which differs from file to file, among its arguments.
#include "kernels/cpu/base/scan_math-inl.h"
#include "kernels/cpu/tiles/tile_kernel.h"
#include "kernels/stack_spec.h"

#if defined(SRU_KERNELS_CPU_TILES_TILE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SRU_KERNELS_CPU_TILES_TILE_KERNEL_INL_H_
#undef SRU_KERNELS_CPU_TILES_TILE_KERNEL_INL_H_
#else
#define SRU_KERNELS_CPU_TILES_TILE_KERNEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

// Rows of a chunk when products are looked up: all blocks of a row while its entry is in a cache.
constexpr int kLookupChunkRows = 64;
// Of a chunk otherwise: all blocks of its rows are done before the next one, so that x stays in the
// second-level cache.
constexpr size_t kTileChunkBytes = 256 * 1024;
// Blocks whose products are multiplied together: AMX has tiles for six accumulators.
constexpr int kProductBlocks = 2;

constexpr HWY_INLINE int AtMost(int a, int b) { return a < b ? a : b; }

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

  // The rows [row, row + rows), whose U is u[rows][block][matrix][16]. Of `places` calls of
  // operator() that follow, each `every`-th scans its part of them; none does if that is 0.
  HWY_INLINE void Start(const float* u, int row, int rows, int places, int every) {
    u_ = u;
    row_ = row;
    rows_ = rows;
    done_ = 0;
    due_ = 0;
    every_ = every > 0 ? every : places + 1;
    wait_ = every_;
    part_ = (rows << kDueBits) * every / places;
  }

  HWY_INLINE void operator()() {
    if (--wait_ > 0) return;
    wait_ = every_;
    due_ += part_;
    ScanUntil(AtMost(due_ >> kDueBits, rows_));
  }
  HWY_INLINE void Finish() { ScanUntil(rows_); }

  // One row with U at `u`.
  HWY_INLINE void ScanRow(int row, const float* u) {
    const int sequence = call_.place_of_row[row];
    for (int b = 0; b < kBlocks; ++b) {
      ScanBlock(row, sequence, b, u + b * kMatrices * kTileColumns);
    }
  }

 private:
  static constexpr int kDueBits = 12;  // of a fraction of a row

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
    const PoolingStep pooling = PoolingInTime(RuleOf(call_.pooling[sequence]).step, call_.backward);
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
  int due_ = 0;    // rows that should be done, in parts of 2^-kDueBits
  int part_ = 0;   // what due_ grows by
  int every_ = 1;  // calls of operator() from one part to the next
  int wait_ = 1;   // until the next
};

// Products and scan of the rows [begin, end). While one piece of rows is multiplied, the piece
// before it is scanned.
template <class Tiles, Highway kHighway, Activation kActivation, int kMatrices, int kBlocks>
HWY_NOINLINE void ScanProducts(const TileScanCall& call, int block, int begin, int end) {
  using Scanner = RowScanner<Tiles, kHighway, kActivation, kMatrices, kBlocks>;
  constexpr int kTogether = AtMost(kBlocks, kProductBlocks);
  constexpr int kPanels = kMatrices * kTogether;
  constexpr int kRows = Tiles::template Rows<kPanels>();
  constexpr size_t kURow = Scanner::kURow;
  HWY_ALIGN_MAX float u[2 * kMostPieceRows / kBlocks * kURow];
  const TileArrangement& arrangement = call.arrangement;
  const int piece_rows = AtMost(arrangement.rows, kMostPieceRows / kBlocks);
  const size_t block_size = call.weights.block_size();
  const BFloat16* w = call.weights.values + block * block_size;
  const int places = (piece_rows + kRows - 1) / kRows * (kBlocks / kTogether) *
                     (call.weights.k / kTileDepth) * kMostPlaces;
  const int every = arrangement.places > 0 ? kMostPlaces / arrangement.places : 0;
  Scanner scanner(call, block);
  float* piece = u;
  float* other = u + piece_rows * kURow;
  for (int done = begin; done < end; done += piece_rows) {
    const int rows = AtMost(piece_rows, end - done);
    const int row = call.backward ? begin + end - done - rows : done;
    for (int first = 0; first < rows; first += kRows) {
      for (int b = 0; b < kBlocks; b += kTogether) {
        Tiles::template Multiply<kPanels, kMatrices>(
            call.x + (row + first) * call.x_stride, call.x_stride, AtMost(kRows, rows - first),
            w + b * block_size, block_size, call.weights.k,
            piece + first * kURow + static_cast<size_t>(b) * kMatrices * kTileColumns, kURow,
            scanner);
      }
    }
    scanner.Finish();
    scanner.Start(piece, row, rows, places, every);
    float* const last = piece;
    piece = other;
    other = last;
  }
  scanner.Finish();
}

template <class Tiles, Highway kHighway, Activation kActivation, int kMatrices, int kBlocks>
HWY_NOINLINE void ScanLookups(const TileScanCall& call, int block, int begin, int end) {
  RowScanner<Tiles, kHighway, kActivation, kMatrices, kBlocks> scanner(call, block);
  const float* table = call.table + static_cast<size_t>(block) * kMatrices * kTileColumns;
  const size_t stride = call.weights.row_size();
  for (int i = 0; i < end - begin; ++i) {
    const int row = call.backward ? end - 1 - i : begin + i;
    scanner.ScanRow(row, table + call.token_of_row[row] * stride);
  }
}

// The rows [begin, end) of kBlocks blocks from `block` on, and so on while there are as many.
// Returns the first block that is left.
template <class Tiles, Highway kHighway, Activation kActivation, int kMatrices, int kBlocks>
HWY_INLINE int ScanBlocks(const TileScanCall& call, int block, int begin, int end) {
  for (; block + kBlocks <= call.last_block; block += kBlocks) {
    if (call.table != nullptr) {
      ScanLookups<Tiles, kHighway, kActivation, kMatrices, kBlocks>(call, block, begin, end);
    } else {
      ScanProducts<Tiles, kHighway, kActivation, kMatrices, kBlocks>(call, block, begin, end);
    }
  }
  return block;
}

template <class Tiles, Highway kHighway, Activation kActivation>
HWY_INLINE void ScanCall(const TileScanCall& call) {
  constexpr int kMatrices = kHighway == Highway::kMatrix ? 4 : 3;
  int chunk = kLookupChunkRows;
  if (call.table == nullptr) {
    const size_t row_bytes = call.x_stride * sizeof(BFloat16);
    const size_t rows = kTileChunkBytes / row_bytes;
    chunk = static_cast<int>(rows) / kMostPieceRows * kMostPieceRows;
    if (chunk < kMostPieceRows) chunk = kMostPieceRows;
  }
  for (int done = 0; done < call.rows; done += chunk) {
    const int rows = AtMost(chunk, call.rows - done);
    const int begin = call.backward ? call.rows - done - rows : done;
    const int end = begin + rows;
    int block = call.first_block;
    if constexpr (kMatrices == 3) {
      if (call.arrangement.blocks >= 4) {
        block = ScanBlocks<Tiles, kHighway, kActivation, kMatrices, 4>(call, block, begin, end);
      }
      if (call.arrangement.blocks >= 2) {
        block = ScanBlocks<Tiles, kHighway, kActivation, kMatrices, 2>(call, block, begin, end);
      }
    }
    ScanBlocks<Tiles, kHighway, kActivation, kMatrices, 1>(call, block, begin, end);
  }
}

template <class Tiles>
HWY_INLINE void TileScan(const TileScanCall& call) {
  if (call.table == nullptr) Tiles::Begin();
  DispatchScan(call.scan, [&](auto variant) HWY_ATTR {
    ScanCall<Tiles, decltype(variant)::kHighway, decltype(variant)::kActivation>(call);
  });
  if (call.table == nullptr) Tiles::End();
}

struct NothingBetween {
  HWY_INLINE void operator()() {}
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
    Tiles::template Multiply<kPanels, kMatrices>(
        call.x + row * call.x_stride, call.x_stride, rows, call.weights.values + block * block_size,
        block_size, call.weights.k, u, static_cast<size_t>(kPanels) * kTileColumns, nothing);
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
