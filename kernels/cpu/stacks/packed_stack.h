// A stack's weights as the CPU backend multiplies and scans them: products packed (product.h),
// gates' constants scaled, everything in padded rows (row_layout.h). Immutable once made.
#ifndef SRU_KERNELS_CPU_STACKS_PACKED_STACK_H_
#define SRU_KERNELS_CPU_STACKS_PACKED_STACK_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/block_sizes.h"
#include "kernels/cpu/base/layer_norm.h"
#include "kernels/cpu/base/row_layout.h"
#include "kernels/cpu/base/scan.h"
#include "kernels/cpu/base/token_table_room.h"
#include "kernels/cpu/base/weight_layout.h"
#include "kernels/cpu/stacks/product.h"
#include "kernels/stack_spec.h"
#include "kernels/weight_source.h"

namespace sru::kernels::cpu {

// Adjacent dimensions of one direction that are multiplied and scanned together: products of wide
// layers come in several, so that idle cores can take some (ParallelRunner). They are the same
// however many threads there are, hence the same bits.
struct Part {
  int direction = 0;
  int first = 0;                     // of its dimensions, in the padded direction
  std::unique_ptr<Product> product;  // planes U0 U1 U2 [U3], each [scan.padded]
  ScanParameters scan;               // of these dimensions
};

struct Layer {
  RowLayout input;
  RowLayout output;
  LayerNorm layer_norm = LayerNorm::kNone;
  Rounding rounding = Rounding::kNone;
  NormWeights norm;
  std::unique_ptr<Product> projection;
  std::vector<AlignedBuffer> constants;  // [direction]: v_f, v_r, b_f, b_r
  std::vector<Part> parts;
  int chunk_rows = 0;
};

// A stack's classifier, which multiplies pooled vectors in float32. Empty without one.
struct Classifier {
  Classifier() = default;
  // `rows` are the pooled vectors. Throws dnnl::error and std::bad_alloc.
  Classifier(WeightSource* weights, const StackSpec& spec, const RowLayout& rows);

  size_t bytes() const { return bias.bytes() + (product != nullptr ? product->bytes() : 0); }

  std::unique_ptr<Product> product;
  AlignedBuffer bias;  // empty = zeros
};

// How a stack is computed.
struct Arithmetic {
  // Weights and activations are rounded so and kept in float32: the products may be in either type
  // and mean the same.
  Rounding rounding = Rounding::kNone;
  // Embeddings are kept in bfloat16.
  bool rounds_embedding = false;
  ProductType products = ProductType::kFloat32;
};

// The whole stack with its weights packed.
struct PackedStack {
  // Throws dnnl::error and std::bad_alloc. `weights` is CompileOptions::weights.
  PackedStack(const StackSpec& stack, const Arithmetic& arithmetic,
              WeightSource* weights = nullptr);

  size_t bytes() const;

  StackSpec spec;  // without weights
  Rounding rounding = Rounding::kNone;
  RowLayout input;  // of the embedding or of the caller's features
  // [vocabulary][input.stride()] where batches read it (ReadsEmbedding()): one of the two.
  AlignedBuffer embedding;
  AlignedArray<BFloat16> rounded_embedding;
  std::unique_ptr<Product> input_to_hidden;
  std::vector<Layer> layers;
  TokenTableRoom table_room;
  std::vector<AlignedBuffer> token_products;  // [part of the first layer], or empty
  Classifier classifier;
};

// Computes the input of a layer's products: layer norm and the low-rank projection. Made once per
// worker and layer. Not thread-safe.
class ProductInput {
 public:
  explicit ProductInput(const Layer& layer) : layer_(layer) {
    if (layer.projection != nullptr) {
      projection_ = std::make_unique<ProductRunner>(*layer.projection);
    }
  }

  // Values of a row that Run() needs of its two arrays, which layers may share.
  static size_t NormalizedWidth(const Layer& layer) {
    return layer.layer_norm == LayerNorm::kBefore ? layer.input.stride() : 0;
  }
  static size_t ProjectedWidth(const Layer& layer) {
    return layer.projection != nullptr ? layer.projection->n() : 0;
  }

  // x [rows][layer.input.stride()]; the result is x itself or in one of the arrays, which have room
  // for kMaxChunkRows more rows.
  const float* Run(const float* x, int rows, float* normalized, float* projected) {
    if (layer_.layer_norm == LayerNorm::kBefore) {
      NormalizeRows(layer_.input, layer_.norm.weight.data(), layer_.norm.bias.data(), x, rows,
                    normalized);
      Round(normalized, rows, layer_.input.stride());
      x = normalized;
    }
    if (projection_ != nullptr) {
      RunInChunks(*layer_.projection, *projection_, x, rows, projected);
      Round(projected, rows, layer_.projection->n());
      x = projected;
    }
    return x;
  }

 private:
  void Round(float* values, int rows, int stride) const {
    RoundRow(layer_.rounding, values, static_cast<size_t>(rows) * stride);
  }

  const Layer& layer_;
  std::unique_ptr<ProductRunner> projection_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_PACKED_STACK_H_
