// ModelSizes: how many values the tensors of a model have, in its file and as the CPU backend lays
// them out, and how many a workspace holds beside those of its stacks. Whoever estimates memory
// before a model is read adds these up (models/memory_estimate.h), and Backend::workspace_bytes()
// says what a workspace takes. Pure functions, thread-safe.
#ifndef SRU_KERNELS_MODEL_SIZES_H_
#define SRU_KERNELS_MODEL_SIZES_H_

#include <cstdint>

#include "kernels/stack_spec.h"

namespace sru::kernels {

inline constexpr int64_t kValueBytes = sizeof(float);

struct ModelSizes {
  int64_t in_file = 0;
  int64_t packed = 0;  // weights of products
  // Those weights and tables, where the file has them as int8, with what is kept of each column.
  int64_t int8_bytes = 0;
  int64_t columns = 0;  // of `packed`
  int64_t token_table = 0;
  int64_t embedding = 0;  // rows that are kept
  int64_t constants = 0;  // as packed, but always float32
  // The largest tensor while it is packed, as it is in the file, with what is laid out of it at a
  // time; of the gates' weights only where activations are float32: bfloat16 takes them, as all
  // take embeddings, in small parts.
  int64_t passing = 0;
  int64_t passing_gates = 0;
  int64_t parts = 0;  // of a layer, each of which a thread may compute
  int64_t widest_row = 0;
  int64_t product_rows = 0;  // values per token that precede the products of a layer
  int64_t pooled_row = 0;    // values per sequence
  int64_t stacks = 1;        // of which one computes at a time; 0: the model has none
  // Values that a program keeps beside its stacks': per token, per thread, and others.
  int64_t program_row = 0;
  int64_t program_thread = 0;
  int64_t program_rest = 0;
  // The most tokens of a step, for which there is a second workspace. 0: the model has no steps, or
  // steps take no memory of their own.
  int64_t step_tokens = 0;
};

// How the CPU backend computes the operations of a program.
struct ProgramBlocks {
  int64_t piece_values;   // of a product, per thread
  int64_t columns;        // of an output layer that are packed at a time
  int64_t output_rows;    // that a thread multiplies by an output layer
  int64_t sinusoid_rows;  // positions whose sinusoids are kept
};
extern const ProgramBlocks kProgramBlocks;

// The columns of packed weights: `n`, rounded up.
int64_t ProductColumns(int64_t n);

// Adds the weights of y = x w, [k][n]. Returns how many values are packed.
int64_t AddProduct(int64_t k, int64_t n, ModelSizes* sizes);

// Adds a linear map with a bias. Returns the same.
int64_t AddLinear(int64_t inputs, int64_t outputs, ModelSizes* sizes);

// Adds a stack and its embedding. Only the sizes of `spec` and of its views are read.
void AddStack(const StackSpec& spec, ModelSizes* sizes);

// Adds an output layer after a stack, of which `block` rows are packed at a time. A tied one is the
// embedding in the file, and yet packed for itself: looking up and multiplying want different
// layouts.
void AddOutputLayer(const StackSpec& spec, int64_t outputs, int64_t block, bool tied,
                    ModelSizes* sizes);

}  // namespace sru::kernels

#endif  // SRU_KERNELS_MODEL_SIZES_H_
