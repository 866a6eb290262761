// The arguments of the kernels that a program's operations run (program.h), beside those that only
// its stacks do; kernel_args.h says what is common to all of them. Values are float32 rows,
// `stride` values apart, whose padding is finite.
//
// A launch covers the rows and sequences of a bucket; the kernels leave out those past the batch's
// own, which AxisHeader has.
#ifndef SRU_KERNELS_CUDA_KERNELS_OPERATION_ARGS_H_
#define SRU_KERNELS_CUDA_KERNELS_OPERATION_ARGS_H_

#include <cstdint>
#include <iterator>
#include <variant>

#include "kernels/cuda/kernels/bfloat16.h"
#include "kernels/cuda/kernels/kernel_args.h"
#include "kernels/data_type.h"
#include "kernels/operands.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

// What the kernels read of an axis of a batch.
struct AxisHeader {
  BatchHeader rows;  // first, so that it is the header of a stack's kernels too
  int32_t num_sequences;
  int32_t reserved[3];
};

// What most operations read of their axis: they make rows, and know the sequence of each,
struct RowsOfAxis {
  const AxisHeader* axis;
  int max_rows;  // of the bucket
  const int32_t* row_sequence;
  const int32_t* offsets;  // [sequence]
};
// or make a row for each sequence of it.
struct SequencesOfAxis {
  const AxisHeader* axis;
  int max_sequences;  // of the bucket
  const int32_t* offsets;
};

// y[r][first_column + j] = x[source(r)][j], with zeros from `width` on up to `padded_width`; r
// counts from 0, source(r) = rows[first + r], or first + r where there are no rows. Column j of x
// is at j / x_size * x_padded + j % x_size, as in row_layout.h.
struct CopyRowsArgs {
  const BatchHeader* header;  // of the rows of `rows` or, without them, of x
  int max_rows;               // of the bucket
  int first;
  const int32_t* rows;
  const float* x;
  int x_stride;
  int x_size;
  int x_padded;
  DataType dtype;  // of y
  void* y;
  int y_stride;
  int first_column;
  int width;
  int padded_width;
};

// y = scale * table[id] + positions (program.h's Embed).
struct EmbedRowsArgs : RowsOfAxis {
  const int32_t* ids;
  DataType dtype;     // of the table
  const void* table;  // [vocabulary][stride]
  int width;
  int stride;  // of the table's rows and of y's
  float scale;
  const double* divisors;      // of each pair's angle [(width + 1) / 2]; null = no positions
  bool halves;                 // the cosines follow all sines
  const int32_t* positions;    // [row]; null = by
  const int32_t* rows_before;  // [sequence] of the position field; null = none
  float* y;
};

// y = max(y + bias, 0), or y + bias without relu.
struct AddBiasArgs : RowsOfAxis {
  int stride;
  const float* bias;  // [stride]; null = zeros
  bool relu;
  float* y;
};

// a + (b + bias), of rows.
struct RowSum {
  const float* a;
  const float* b;
  const float* bias;  // [stride]; null = zeros
};

// y = sum.
struct AddRowsArgs : RowsOfAxis {
  int stride;
  RowSum sum;
  float* y;
};

// x = sum, if there is one, and y = (x - mean) / sqrt(variance + epsilon) * weight + bias per row,
// padding left out of mean and variance. y may be x.
struct NormalizeRowsArgs {
  const BatchHeader* header;
  int max_rows;  // of the bucket
  int segments;
  int size;
  int padded;
  RowSum sum;           // of float32; a is null: none, x is there
  DataType dtype;       // of x
  void* x;              // written with a sum
  const float* weight;  // [segments * padded]
  const float* bias;
  float epsilon;
  // One of them at least; null = not wanted.
  float* y;
  BFloat16* rounded;
};

// A fixed field of the slots of an axis: a sequence's row is at `offset` in these pages.
struct FieldRows {
  const float* const* in;  // [sequence]: before this run; null = zeros. Null = none in this bucket.
  float* const* out;       // [sequence]: after it; null = not wanted
  int64_t offset;
};

// The states of a stack: rows of slots, dense [layers][size], and the padded rows that its scans
// read and write in place.
struct StackState {
  FieldRows field;
  int layers;
  int size;
  int padded;
  float* state;  // [sequence][layers][padded]
};

// Copies the states of several stacks from `in`, or to `out`. A sequence without rows, which no
// scan has touched, keeps its state by that.
inline constexpr int kMaxStackStates = 8;
struct MoveStatesArgs : SequencesOfAxis {
  bool to_slots;
  int columns;  // layers * padded of all stacks
  int count;
  StackState stacks[kMaxStackStates];
};

// y_t = x_{t-1} within a sequence, the first row being the field's before, or zeros where there is
// none.
struct ShiftRowsArgs : RowsOfAxis {
  int width;
  int stride;
  FieldRows field;
  const float* x;
  float* y;
};

// c = f * c + (1 - f) * x, y = max(0, c), f = sigmoid(forget), over the rows of each sequence, from
// the field's row, or zeros, to its next one (program.h's Ssru).
struct SsruArgs : SequencesOfAxis {
  int width;
  int stride;
  const float* x;
  const float* forget;
  FieldRows field;
  float* y;
};

// y[sequence] = the sequence's last row of x, or the field's row where it has no rows, or zeros
// where there is none.
struct LastRowsArgs : SequencesOfAxis {
  int width;
  int stride;
  FieldRows field;
  const float* x;
  float* y;  // null: the field's next row is written in its place
};

// A growing field of the slots of an axis: the rows before this run, and pages that have
// kStatePageRows of its rows at `offset`. Those of a sequence begin at pages[page_begin].
struct FieldPages {
  const int32_t* rows_before;  // [sequence]
  const int32_t* page_begin;   // [sequence]
  float* const* pages;
  int64_t offset;
};

// Rows that are added to a growing field.
struct AppendedRows {
  FieldPages field;
  // [sequence]: the page, shared with other slots, whose rows the last page before this run must
  // get first (StateArena::Run::copied_from()), by which a shared page is copied without a launch
  // of its own;
  // null = none.
  const float* const* copied_from;
  const float* x;
  const float* bias;  // [width]; null = zeros
};

// Adds the rows of x + bias to each of `count` growing fields of one width.
inline constexpr int kMaxAppended = 3;
struct AppendArgs : RowsOfAxis {
  int width;
  int stride;  // of each x
  int count;
  AppendedRows fields[kMaxAppended];
};

// y = x w where x is what a layer norm makes: every block of the product makes its rows for itself,
// and one writes what the norm would. Columns of y may be rows of growing fields as well.
struct NormalizedProductArgs : SkinnyArgs {  // x is null
  NormalizeRowsArgs norm;                    // of `rows` rows of k values, float32 in one segment
  AppendArgs append;                         // of columns of y; its count may be 0
};
// The most that a block has room for.
inline constexpr int kMaxNormalizedRows = 32;
inline constexpr int kMaxNormalizedWidth = 512;

// y_t = sum_s softmax_s(scale * q_t . k_s) v_s for each head (program.h's Attend).
struct AttendArgs : RowsOfAxis {
  int heads;
  int key_width;    // of q and k; a head has its part
  int value_width;  // of v and y
  float scale;
  bool causal;
  const float* q;
  const float* q_bias;  // [key_width], added to q; null = zeros
  int q_stride;
  float* y;
  int y_stride;
  BFloat16* rounded;  // y once more, y_stride apart; null = not wanted
  // Keys and values are rows of values,
  const float* keys;
  const float* values;
  int key_stride;
  int value_stride;
  const int32_t* key_offsets;  // of the axis of keys and values
  const int32_t* map;          // [q's sequence]: theirs; null = the same
  // or, where `keys` is null, rows of fields, to which this run has added q's sequences' rows if
  // `appended` says so.
  FieldPages key_field;
  FieldPages value_field;
  bool appended;
  // The weights of head 0, a row's at attention[attention_begin[sequence]] plus the row's place in
  // its sequence times the keys; null = not wanted.
  const int64_t* attention_begin;  // [q's sequence]
  float* attention;
};

// y_b = the pool of the rows of sequence b, or sum_t softmax_t(weights_t) x_t.
struct PoolRowsArgs : SequencesOfAxis {
  int width;
  int stride;
  Pooling pooling;
  int directions;
  const float* weights;  // rows of width 1; null = `pooling`
  int weight_stride;
  const float* x;
  float* y;
};

// y_t = x_t . v_m, m being map[sequence], or the sequence.
struct RowDotArgs : RowsOfAxis {
  int width;
  const int32_t* map;
  const float* x;
  int x_stride;
  const float* v;
  int v_stride;
  float* y;
  int y_stride;
};

// What the kernels read of the rows of which a Predict is asked something.
struct PredictHeader {
  BatchHeader rows;
  int32_t max_count;  // of candidates, over these rows
  int32_t reserved;
  Candidate* candidates;  // [row][max_count], on the device or in the host's mapped memory
};

// Of rows of logits: what Predict answers. Row r of the launch is number first + r of the rows that
// are asked for. Where symbols are picked, all rows of x are asked for.
struct PredictArgs {
  const PredictHeader* header;
  int max_rows;
  int first;
  float* logits;  // [r][logit_stride], without bias; the kernel adds it, and adjusts them
  int logit_stride;
  int vocabulary_size;
  const float* bias;       // [vocabulary_size]; null = zeros
  const int32_t* targets;  // [first + r]; -1: no log-probability
  const int32_t* counts;   // [first + r]: of candidates
  // Without `sampling`: the symbols of the row's sequence of choices alone; null = all. Of them
  // those that are no candidates.
  const int32_t* rows;          // [first + r]: a row of x
  const int32_t* row_sequence;  // [row of x]
  const int32_t* choices_map;   // [sequence of x]
  const int32_t* choice_offsets;
  const int32_t* choices;
  const int32_t* never;
  int num_never;
  float* log_prob;                    // [first + r]
  const Sampling* sampling;           // [first + r]; null = nothing is picked, nor is the rest read
  const int32_t* adjustment_offsets;  // [first + r]; null = nothing is adjusted
  const Adjustment* adjustments;
  float* unadjusted;        // [adjustment]: scratch
  Candidate* picked;        // [first + r]
  size_t max_shared_bytes;  // these two are OperationLimits', set by the launch
  int max_clustered_rows;
};

// The limits of a device, which operations choose their kernels by.
struct OperationLimits {
  size_t max_shared_bytes = 0;  // that a block can have
  int max_clustered_rows =
      0;  // rows of which each may have a cluster of blocks; 0: it has no clusters
};

using OperationArgs =
    std::variant<EmbedArgs, NormalizeRowsArgs, PoolArgs, HeadArgs, CompareArgs, CopyRowsArgs,
                 EmbedRowsArgs, AddBiasArgs, AddRowsArgs, MoveStatesArgs, SsruArgs, ShiftRowsArgs,
                 LastRowsArgs, AppendArgs, AttendArgs, PoolRowsArgs, RowDotArgs, PredictArgs>;
// Of the first ones, which are not a program's alone.
inline constexpr const char* kOperationNames[] = {"embedding", "layer norm", "pooling",
                                                  "classifier", "comparison"};
inline const char* OperationName(const OperationArgs& args) {
  return args.index() < std::size(kOperationNames) ? kOperationNames[args.index()] : "operation";
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_OPERATION_ARGS_H_
