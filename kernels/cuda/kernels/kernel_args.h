// The arguments of the CUDA kernels: plain structures, passed by value at a launch. Host code fills
// them, the kernels (*.cuh) and their launchers (*.cu) read them. Includes nothing of
// the toolkit.
//
// What a launch depends on must be the same for every batch of a bucket (bucket.h), because
// launches are recorded once per bucket and replayed. What differs from batch to batch is in
// device memory: BatchHeader and SequenceEntry.
//
// Pointers are device memory unless said otherwise. "Rows" are in row_layout.h's form; `void*` rows
// hold the storage type, float or BFloat16, that `dtype` or the launcher is told. Strides are in
// values.
#ifndef SRU_KERNELS_CUDA_KERNELS_KERNEL_ARGS_H_
#define SRU_KERNELS_CUDA_KERNELS_KERNEL_ARGS_H_

#include <cstdint>

#include "kernels/data_type.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

// What the kernels read of a whole batch.
struct BatchHeader {
  int32_t num_tokens;
  int32_t reserved[3];  // keeps what follows on 16 bytes
};

// One sequence of a batch. They are sorted longest first, so that the scans that take longest start
// first; spare entries of a bucket follow with length 0. A row of -1 means "not wanted".
struct alignas(16) SequenceEntry {  // so that it is read by two loads
  int32_t begin;                    // its first token
  int32_t length;                   // tokens; 0 = spare
  int32_t index;      // its place in the caller's batch: its row of the initial states
  Pooling pooling;    // of its row in `pooled`
  int32_t pool_row;   // row in `pooled`
  int32_t label_row;  // row in `label_results`; needs a pool_row
  int32_t state_row;  // row in `final_state`
  int32_t token_row;  // first row in `token_vectors`
};

// x[t] = table[token_ids[t]] or features[t], for the batch's tokens.
struct EmbedArgs {
  DataType dtype;
  const BatchHeader* header;
  int max_tokens;            // of the bucket
  const int32_t* token_ids;  // exactly one of
  const float* features;     // these two; [t][segments * size], feature_stride apart
  int feature_stride;
  const void* table;  // rows, read with token_ids
  int segments;
  int size;
  int padded;
  void* x;  // rows
};

// The recurrence of one layer over all sequences and both directions (scan.cuh).
struct ScanArgs {
  const SequenceEntry* sequences;
  int num_sequences;  // of the bucket
  int directions;
  int padded;  // values of a direction's segment
  // Rows of `u` and of `highway` are those of the batch's tokens or, with token ids, of the
  // vocabulary: token t reads row token_ids[t] of both.
  const int32_t* token_ids;
  // U, rows of [direction][matrix][padded].
  const void* u;
  int u_stride;
  int matrices;  // planes per direction: 3 or 4
  // The highway term is highway_scale * highway[t][direction * highway_direction_stride + j]: the
  // layer's input, U's fourth plane, or, with a scale of 0, U0 once more when there is none.
  const void* highway;
  int highway_stride;
  int highway_direction_stride;
  float highway_scale;
  Activation activation;
  const float* constants;  // [direction][v_f, v_r, b_f, b_r][padded]
  // States are at [row * state_stride + direction * padded + j]; null = zeros, none wanted.
  const float* initial_state;  // row = index
  float* final_state;          // row = state_row
  int64_t state_stride;
  void* h;  // rows; null = not stored
  // Of the last layer, which stores no h; null when no sequence of the bucket wants them.
  float* token_vectors;  // rows of float32
  float* pooled;         // rows of float32
};

// A layer's products and its scan in one (fused.cuh), in bfloat16. Of `scan`, u is not read, and
// highway is null unless it is the layer's input: with four matrices the highway term is the last
// one's.
struct FusedArgs {
  ScanArgs scan;
  const void* x;        // rows of k values
  const void* weights;  // [direction][matrix][padded] rows of k values
  int k;                // a multiple of 8, at most kFusedMaxInput
};

// Token vectors and pooled vectors of rows that are in memory, for stacks that end with a layer
// norm.
struct PoolArgs {
  DataType dtype;
  const SequenceEntry* sequences;
  int num_sequences;
  int segments;
  int padded;
  const void* h;
  float* token_vectors;  // null = not wanted
  float* pooled;         // null = not wanted
};

// logits = weight pooled + bias, probabilities = softmax(logits), for entries with a label_row.
struct HeadArgs {
  const SequenceEntry* sequences;
  int num_sequences;
  int stride;  // of a pooled row
  int labels;
  const float* pooled;
  const float* weight;   // [labels][stride]
  const float* bias;     // [labels]
  float* label_results;  // [label_row][logits, probabilities][labels]
  // The same once more, in memory of the host, which is written only; null = not wanted.
  float* host_results;
};

// y = x w (skinny.cuh). x is [rows][k], w is stored as [n][k], y is [rows][n], in float32 or of the
// type of x and w.
struct SkinnyArgs {
  int rows;
  int k;  // a multiple of 8, so that rows begin at 16 bytes
  int n;
  const void* x;
  const void* weights;  // which no kernel writes
  void* y;
};

// Sets *differs to 1 when row r of `values` differs in any bit from row r % period of `expected`.
struct CompareArgs {
  const uint32_t* values;
  const uint32_t* expected;
  int rows;
  int period;
  int words_per_row;
  uint32_t* differs;
};

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_KERNEL_ARGS_H_
