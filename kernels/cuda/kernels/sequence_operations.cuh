// Operations that make a row per sequence: states from and to slots, pooling. A thread makes one
// value and goes over the sequence's rows from the first to the last.
//
// Blocks: sequences x width / 128. Bound by the launch where a sequence has one row, as in
// decoding. Above each kernel is what bounds it otherwise, its bytes a result, and its blocks of
// 132 multiprocessors.
#ifndef SRU_KERNELS_CUDA_KERNELS_SEQUENCE_OPERATIONS_CUH_
#define SRU_KERNELS_CUDA_KERNELS_SEQUENCE_OPERATIONS_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/row_operations.cuh"
#include "kernels/cuda/kernels/rows_shape.h"
#include "kernels/cuda/kernels/running_pool.cuh"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

// A template only so that a header may hold it, as those below.
// Bound by memory: 4 bytes read and 4 written a result, for every layer of all stacks. 16 sequences
// of 512 values a layer are 64 blocks of 132 multiprocessors for each layer.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    MoveStatesKernel(const __grid_constant__ MoveStatesArgs args) {
  const RowPlace at = PlaceOf(args.columns);
  if (!IsSequence(args.axis, args.max_sequences, at.row)) return;
  int column = at.column;
  int s = 0;
  for (; column >= args.stacks[s].layers * args.stacks[s].padded; ++s) {
    column -= args.stacks[s].layers * args.stacks[s].padded;
  }
  const StackState& of = args.stacks[s];
  const int j = column % of.padded;
  const int i = column / of.padded * of.size + j;
  T* state = of.state + int64_t{at.row} * of.layers * of.padded + column;
  if (args.to_slots) {
    T* out = NextRow(of.field, at.row);
    if (out != nullptr && j < of.size) out[i] = *state;
  } else {
    const T* in = RowBefore(of.field, at.row);
    *state = in != nullptr && j < of.size ? in[i] : 0.0f;
  }
}
template <typename Launch>
auto WithKernel(const MoveStatesArgs& args, const Launch& launch) {
  return launch(MoveStatesKernel<float>, PerValue(args.max_sequences, args.columns), args);
}

// Bound by its steps, one for each row of the sequence: 8 bytes read and 4 written a result, and 8
// for the state. 16 sequences of 512 values are 64 blocks of 132 multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) SsruKernel(const SsruArgs args) {
  const RowPlace at = PlaceOf(args.stride);
  if (!IsSequence(args.axis, args.max_sequences, at.row)) return;
  const bool is_value = at.column < args.width;  // and not padding
  const T* in = RowBefore(args.field, at.row);
  float c = in != nullptr && is_value ? in[at.column] : 0.0f;
  for (int t = args.offsets[at.row]; t < args.offsets[at.row + 1]; ++t) {
    const int64_t i = int64_t{t} * args.stride + at.column;
    const float f = 1.0f / (1.0f + expf(-args.forget[i]));
    c = is_value ? f * c + (1.0f - f) * args.x[i] : 0.0f;
    args.y[i] = fmaxf(0.0f, c);
  }
  T* out = NextRow(args.field, at.row);
  if (out != nullptr && is_value) out[at.column] = c;
}
template <typename Launch>
auto WithKernel(const SsruArgs& args, const Launch& launch) {
  return launch(SsruKernel<float>, PerValue(args.max_sequences, args.stride), args);
}

// Bound by memory, however long a sequence is: 4 bytes read and 4 written a result. 16 sequences of
// 512 values are 64 blocks of 132 multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) LastRowsKernel(const LastRowsArgs args) {
  const RowPlace at = PlaceOf(args.stride);
  if (!IsSequence(args.axis, args.max_sequences, at.row)) return;
  const int end = args.offsets[at.row + 1];
  const T* in = RowBefore(args.field, at.row);
  T value = 0.0f;
  if (at.column >= args.width) {
    if (args.y == nullptr) return;
  } else if (end > args.offsets[at.row]) {
    value = args.x[int64_t{end - 1} * args.stride + at.column];
  } else if (in != nullptr) {
    value = in[at.column];
  }
  T* const y =
      args.y == nullptr ? NextRow(args.field, at.row) : args.y + int64_t{at.row} * args.stride;
  if (y != nullptr) y[at.column] = value;
}
template <typename Launch>
auto WithKernel(const LastRowsArgs& args, const Launch& launch) {
  return launch(LastRowsKernel<float>, PerValue(args.max_sequences, args.stride), args);
}

// sum_t softmax_t(w_t) x_t, as a thread sees it: w and x are those of the sequence's first row.
__device__ __forceinline__ float WeightedSum(const float* w, int64_t w_stride, const float* x,
                                             int64_t x_stride, int length) {
  float top = -HUGE_VALF;
  for (int t = 0; t < length; ++t) top = fmaxf(top, w[t * w_stride]);
  float total = 0.0f;
  float sum = 0.0f;
  for (int t = 0; t < length; ++t) {
    const float e = expf(w[t * w_stride] - top);
    total += e;
    sum = fmaf(e, x[t * x_stride], sum);
  }
  return sum / total;
}

__device__ __forceinline__ float PoolOfRows(Pooling pooling, bool backward, const float* x,
                                            int64_t stride, int length) {
  const PoolingRule rule = RuleOf(pooling);
  const bool picks_first = PoolingOverTokens(rule.step, backward) == PoolingStep::kFirst;
  const bool takes_max = TakesMax(rule.step);
  float pool = PoolStart(takes_max);
  for (int t = 0; t < length; ++t) pool = PoolStep(takes_max, pool, x[t * stride]);
  const float picked = x[picks_first ? 0 : (length - 1) * stride];
  return PoolEnd(rule, pool, picked, 1.0f / static_cast<float>(length));
}

// Bound by trips to memory, one for each row of the sequence, or three with weights: 4 bytes read
// for each row, weights from the cache, and 4 written a result. 16 sequences of 512 values are 64
// blocks of 132 multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) PoolRowsKernel(const PoolRowsArgs args) {
  const RowPlace at = PlaceOf(args.stride);
  if (!IsSequence(args.axis, args.max_sequences, at.row)) return;
  const int begin = args.offsets[at.row];
  const int length = args.offsets[at.row + 1] - begin;
  T value = 0.0f;
  if (length > 0 && at.column < args.width) {
    const T* x = args.x + int64_t{begin} * args.stride + at.column;
    if (args.weights != nullptr) {
      value = WeightedSum(args.weights + int64_t{begin} * args.weight_stride, args.weight_stride, x,
                          args.stride, length);
    } else {
      const bool backward = args.directions == 2 && at.column >= args.width / 2;
      value = PoolOfRows(args.pooling, backward, x, args.stride, length);
    }
  }
  args.y[int64_t{at.row} * args.stride + at.column] = value;
}
template <typename Launch>
auto WithKernel(const PoolRowsArgs& args, const Launch& launch) {
  return launch(PoolRowsKernel<float>, PerValue(args.max_sequences, args.stride), args);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_SEQUENCE_OPERATIONS_CUH_
