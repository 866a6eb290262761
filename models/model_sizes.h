// ModelSizes: how many values the tensors of a model have, in its file and as the CPU backend lays them out, and how many a
// workspace has beside those of its stacks. An estimate of memory (memory_estimate.h) is computed from them. Each task adds up its
// own (task_parts.h), with the functions below. Pure functions, thread-safe.
#ifndef SRU_MODELS_MODEL_SIZES_H_
#define SRU_MODELS_MODEL_SIZES_H_

#include <cstdint>

#include "kernels/cpu/base/block_sizes.h"
#include "kernels/cpu/base/row_layout.h"
#include "models/config.h"

namespace sru::models {

inline constexpr int64_t kValueBytes = sizeof(float);

struct ModelSizes {
  int64_t in_file = 0;
  int64_t packed = 0;  // weights of products
  int64_t int8_bytes =
      0;  // the same and tables, where the file has them as int8: with what is kept of each column
  int64_t columns = 0;  // of these
  int64_t token_table = 0;
  int64_t embedding = 0;  // rows that are kept
  int64_t constants = 0;  // as packed, but always float32
  // The largest tensor while it is packed, as it is in the file, with what is laid out of it at a
  // time; of the gates' weights only where activations are float32: bfloat16 takes them, as all take
  // embeddings, in small parts.
  int64_t passing = 0;
  int64_t passing_gates = 0;
  int64_t parts = 0;  // of a layer, each of which a thread may compute
  int64_t widest_row = 0;
  int64_t product_rows = 0;  // values per token that precede products, over all layers
  int64_t stacks = 1;        // each with a workspace of its own
  // Values that a program keeps beside its stacks': per token, per thread, and others.
  int64_t program_row = 0;
  int64_t program_thread = 0;
  int64_t program_rest = 0;
  // The most tokens of a step, for which there is a second workspace; 0: the model has no steps, or they take no memory of their own.
  int64_t step_tokens = 0;
};

// Values of a piece of a program's product, per thread.
inline constexpr int64_t kPieceValues = int64_t{kernels::cpu::kChunkBytes} / kValueBytes;
// Positions whose sinusoids are kept.
inline constexpr int64_t kSinusoidRows = kernels::cpu::kTablePositions;

// The columns of packed weights: `n`, rounded up.
int64_t ProductColumns(int64_t n);

// Adds the weights of y = x w, [k][n]. Returns how many values are packed.
int64_t AddProduct(int64_t k, int64_t n, ModelSizes* sizes);

// Adds a linear map with a bias. Returns the same.
int64_t AddLinear(int64_t inputs, int64_t outputs, ModelSizes* sizes);

// Adds the layers of a stack, which reads `rows`. `vocabulary_size` is that of an embedding before it, 0
// without; returns whether nothing reads that embedding but the token table.
bool AddLayers(const EncoderConfig& encoder, kernels::cpu::RowLayout rows, int64_t vocabulary_size,
               ModelSizes* sizes);

// A stack with an output layer of `outputs` rows, out.weight, of which `block` are packed at a time. A tied one is the embedding
// in the file, and yet packed for itself: looking up and multiplying want different layouts.
ModelSizes StackSizes(const ModelConfig& config, int64_t outputs, int64_t block);
// The same with an output layer for the labels.
ModelSizes StackSizes(const ModelConfig& config);

}  // namespace sru::models

#endif  // SRU_MODELS_MODEL_SIZES_H_
