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
#include "kernels/cpu/base/row_layout.h"
#include "kernels/cpu/base/scan.h"
#include "kernels/cpu/base/token_table_room.h"
#include "kernels/cpu/base/weight_layout.h"
#include "kernels/cpu/stacks/classify.h"
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
  std::unique_ptr<Product> classifier;
  AlignedBuffer classifier_bias;  // empty = zeros
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_STACKS_PACKED_STACK_H_
