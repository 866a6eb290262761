// A stack's weights in bfloat16 as tile_kernel.h multiplies them. Immutable once made.
#ifndef SRU_KERNELS_CPU_STACKS_TILE_STACK_H_
#define SRU_KERNELS_CPU_STACKS_TILE_STACK_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/row_layout.h"
#include "kernels/cpu/base/scan.h"
#include "kernels/cpu/base/token_table_room.h"
#include "kernels/cpu/base/weight_layout.h"
#include "kernels/cpu/stacks/packed_stack.h"
#include "kernels/cpu/tiles/tile_kernel.h"
#include "kernels/stack_spec.h"
#include "kernels/weight_source.h"

namespace sru::kernels::cpu {

// Values from one bfloat16 row to the next: whole tiles, zeros past the layout's stride.
inline size_t TileStride(const RowLayout& rows) {
  const size_t tiles = (rows.stride() + kTileDepth - 1) / kTileDepth;
  return tiles * kTileDepth;
}

// A matrix whose product is stored: the low-rank projection, or the map before the first layer.
struct TileProduct {
  // `w` is [from.stride()][to.stride()].
  TileProduct(const AlignedBuffer& w, const RowLayout& from, const RowLayout& to);

  RowLayout output;
  AlignedArray<BFloat16> values;
  TileWeights weights;
};

struct TileDirection {
  AlignedArray<BFloat16> values;
  TileWeights weights;
  AlignedBuffer constants;
  ScanParameters scan;
  AlignedBuffer table;  // [token][weights.row_size()], of the first layer only, or empty
};

struct TileLayer {
  RowLayout input;
  RowLayout output;
  LayerNorm layer_norm = LayerNorm::kNone;
  NormWeights norm;
  std::unique_ptr<TileProduct> projection;
  std::vector<TileDirection> directions;

  // Of the rows that the gates' products multiply.
  size_t product_stride() const {
    return TileStride(projection != nullptr ? projection->output : input);
  }
};

struct TileStack {
  // `kernel` computes the table, `weights` is CompileOptions::weights. Throws std::bad_alloc and,
  // for the classifier, dnnl::error.
  TileStack(const StackSpec& stack, const TileKernel& kernel, WeightSource* weights = nullptr);

  size_t bytes() const;

  StackSpec spec;  // without weights
  const TileKernel& kernel;
  // Tests give all layers this one; null: as ChooseTileArrangement() says.
  const TileArrangement* arrangement = nullptr;
  RowLayout input;
  // [vocabulary][TileStride(input)] where batches read it (ReadsEmbedding()), else empty.
  AlignedArray<BFloat16> embedding;
  std::unique_ptr<TileProduct> input_to_hidden;
  TokenTableRoom table_room;
  std::vector<TileLayer> layers;
  Classifier classifier;
};

// Rows that TileInput stores and rounds at a time.
inline constexpr int kTileInputRows = 4 * kTileRows;

// What precedes the products of a layer, for any rows of a batch: layer norm, projection. Also
// the map before the first layer. Not thread-safe: one per thread.
class TileInput {
 public:
  explicit TileInput(const TileStack& stack);

  // y = x w, rounded. Rows from the pointers on; kTileSpareRows rows after the last are read.
  void Multiply(const TileKernel& kernel, const TileProduct& product, const BFloat16* x,
                size_t x_stride, int rows, BFloat16* y);
  // y = norm(x); y may be x.
  void Normalize(const RowLayout& layout, const NormWeights& norm, const BFloat16* x, int rows,
                 BFloat16* y);
  // One row, left in float32.
  const float* NormalizeRow(const RowLayout& layout, const NormWeights& norm, const BFloat16* x);
  size_t bytes() const { return values_.bytes(); }

 private:
  AlignedBuffer values_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_TILE_STACK_H_
