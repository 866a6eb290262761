// The pass of a stack over the sequences of a bucket: embedding, layers, pooling, classifier. Knows
// no workspace: a classifier's (cuda_workspace.h) and a program's (program_forward.cc) both run it,
// and the table of the whole vocabulary (token_table.h) what comes before the first scan.
#ifndef SRU_KERNELS_CUDA_STACK_STACK_PASS_H_
#define SRU_KERNELS_CUDA_STACK_STACK_PASS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "kernels/cuda/device/array_plan.h"
#include "kernels/cuda/device/device.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/cuda/stack/packed_stack.h"
#include "kernels/cuda/stack/product_plan.h"
#include "kernels/status.h"

namespace sru::kernels::cuda {

class TokenTable;

// What a pass has in memory between its launches: rows of the widest kind of each that the stack
// has.
struct StackScratch {
  ArrayView x;           // a layer's input
  ArrayView h;           // its output
  ArrayView normalized;  // what a layer norm before the products makes
  ArrayView projected;
  ArrayView u;

  static constexpr int kArrays = 5;
  std::array<ArrayView*, kArrays> arrays() { return {&x, &h, &normalized, &projected, &u}; }
  // Bytes of each array for so many rows.
  static std::array<size_t, kArrays> Bytes(const PackedStack& stack, size_t rows);
};

// What a pass reads and writes. Pointers are device memory, and rows are in the stack's layout
// (PackedStack) except those of `features`. Must outlive the call of EnqueueStack() only.
struct StackPass {
  Stream* stream = nullptr;
  // Of the bucket, with the algorithm that its rows are multiplied by.
  int max_tokens = 0;
  int num_sequences = 0;
  std::function<ProductChoice(const PackedProduct&)> choice;

  const BatchHeader* header = nullptr;
  const SequenceEntry* sequences = nullptr;
  const int32_t* token_ids = nullptr;  // exactly one of
  const float* features = nullptr;     // these three
  const void* rows = nullptr;          // as features, in the stack's layout and its storage type
  // With `rows`: the layer norm that makes them in the launch of the first product; null = they are
  // there.
  const NormalizedProductArgs* first_product = nullptr;
  int feature_stride = 0;                // values from one row of features to the next
  const float* initial_state = nullptr;  // [sequence's index][layers][output stride]; null = zeros

  // Results; null = not wanted. Those that no later kernel reads, which is all but `pooled` with
  // `label_results` and these themselves, may be in pinned memory of the host.
  float* final_state = nullptr;    // [state_row][layers][output stride]
  float* token_vectors = nullptr;  // [token_row]
  // In place of token vectors, of a stack whose scan finishes them: those of all tokens in their
  // order, in the storage type.
  void* output = nullptr;
  float* pooled = nullptr;         // [pool_row]
  float* label_results = nullptr;  // [label_row][logits, probabilities]; needs `pooled`
  // label_results once more, in pinned memory of the host; null = not wanted.
  float* host_label_results = nullptr;

  // For as many rows as the products of the bucket have.
  const StackScratch* scratch = nullptr;
};

// Brings the sequences of a batch into the order of StackPass::sequences, and fills them up to
// those of the bucket.
void OrderSequences(SequenceEntry* entries, int count, int of_bucket);

// Puts the launches on the stream. Nothing of it depends on the batch but on its bucket, so it may
// be recorded. With a table (null = none) passes with token ids begin with the first layer's scan.
Status EnqueueStack(const PackedStack& stack, const DeviceStack& weights, const TokenTable* table,
                    const StackPass& pass);

// The same of what comes before the first layer's scan alone, which makes that layer's input in
// scratch->x and its product in scratch->u. The first layer is not fused.
Status EnqueueFirstProduct(const PackedStack& stack, const DeviceStack& weights,
                           const StackPass& pass);

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_STACK_STACK_PASS_H_
