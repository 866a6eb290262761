// Operations that make each row from a row or two: copies, embeddings, sums, shifts, layer norms. A
// thread makes one value, except for layer norms and products of rows, of which a warp makes a row.
//
// Blocks: rows x width / 128, or rows / 4 where a warp makes a row. The few rows of decoding are
// bound by the launch. Above each kernel is what bounds it where rows are many, its bytes a result,
// and its blocks of 132 multiprocessors.
#ifndef SRU_KERNELS_CUDA_KERNELS_ROW_OPERATIONS_CUH_
#define SRU_KERNELS_CUDA_KERNELS_ROW_OPERATIONS_CUH_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/layer_norm.cuh"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/rows_shape.h"
#include "kernels/cuda/kernels/sinusoid.cuh"
#include "kernels/cuda/kernels/storage_type.h"
#include "kernels/state_arena.h"

namespace sru::kernels::cuda {

// The place of a thread among rows of `width` values.
struct RowPlace {
  int row;
  int column;
};

__device__ __forceinline__ RowPlace PlaceOf(int width) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kRowThreads + threadIdx.x;
  return {static_cast<int>(at / width), static_cast<int>(at % width)};
}

// The place of a thread's warp among rows.
__device__ __forceinline__ int64_t WarpPlace() {
  return static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / kWarpSize;
}

__device__ __forceinline__ bool IsRow(const AxisHeader* axis, int max_rows, int64_t row) {
  return row < max_rows && row < axis->rows.num_tokens;
}

__device__ __forceinline__ bool IsSequence(const AxisHeader* axis, int max_sequences, int b) {
  return b < max_sequences && b < axis->num_sequences;
}

// Bound by memory: 4 bytes read and 4 written a result, or 2 in bfloat16. 16 rows of 512 values are
// 64 blocks of 132 multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) CopyRowsKernel(const CopyRowsArgs args) {
  const RowPlace at = PlaceOf(args.padded_width);
  const int64_t number = int64_t{args.first} + at.row;
  if (at.row >= args.max_rows || number >= args.header->num_tokens) return;
  float value = 0.0f;
  if (at.column < args.width) {
    const int64_t source = args.rows != nullptr ? args.rows[number] : number;
    const int column = at.column / args.x_size * args.x_padded + at.column % args.x_size;
    value = args.x[source * args.x_stride + column];
  }
  T* y = static_cast<T*>(args.y) + int64_t{at.row} * args.y_stride;
  y[args.first_column + at.column] = FromFloat<T>(value);
}
template <typename Launch>
auto WithKernel(const CopyRowsArgs& args, const Launch& launch) {
  const LaunchShape shape = PerValue(args.max_rows, args.padded_width);
  return WithStorageType(
      args.dtype, [&](auto type) { return launch(CopyRowsKernel<decltype(type)>, shape, args); });
}

// Bound by memory, and with positions by float64 instructions: 4 bytes of the table read a result,
// or 2 in bfloat16, and 4 written. 16 rows of 512 values are 64 blocks of 132 multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) EmbedRowsKernel(const EmbedRowsArgs args) {
  const RowPlace at = PlaceOf(args.stride);
  if (!IsRow(args.axis, args.max_rows, at.row)) return;
  const T* row = static_cast<const T*>(args.table) + int64_t{args.ids[at.row]} * args.stride;
  float value = args.ids[at.row] < 0 ? 0.0f : args.scale * ToFloat(row[at.column]);
  if (args.divisors != nullptr && at.column < args.width) {
    const int b = args.row_sequence[at.row];
    const int64_t before = args.rows_before != nullptr ? args.rows_before[b] : 0;
    const int64_t position =
        args.positions != nullptr ? args.positions[at.row] : before + at.row - args.offsets[b];
    const int half = args.width / 2;
    const int pair = args.halves ? at.column % half : at.column / 2;
    const bool is_sine = args.halves ? at.column < half : at.column % 2 == 0;
    const double angle = static_cast<double>(position) / args.divisors[pair];
    value += static_cast<float>(is_sine ? Sine(angle) : Cosine(angle));
  }
  args.y[int64_t{at.row} * args.stride + at.column] = value;
}
template <typename Launch>
auto WithKernel(const EmbedRowsArgs& args, const Launch& launch) {
  const LaunchShape shape = PerValue(args.max_rows, args.stride);
  return WithStorageType(
      args.dtype, [&](auto type) { return launch(EmbedRowsKernel<decltype(type)>, shape, args); });
}

// A template only so that a header may hold it, as those below.
// Bound by memory: 4 bytes read and 4 written a result; the bias stays in the cache. 16 rows of 512
// values are 64 blocks of 132 multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) AddBiasKernel(const AddBiasArgs args) {
  const RowPlace at = PlaceOf(args.stride);
  if (!IsRow(args.axis, args.max_rows, at.row)) return;
  T* y = args.y + int64_t{at.row} * args.stride + at.column;
  T value = *y;
  if (args.bias != nullptr) value += args.bias[at.column];
  *y = args.relu ? fmaxf(value, 0.0f) : value;
}
template <typename Launch>
auto WithKernel(const AddBiasArgs& args, const Launch& launch) {
  return launch(AddBiasKernel<float>, PerValue(args.max_rows, args.stride), args);
}

// The result for value i, which is in this column of its row.
__device__ __forceinline__ float SumAt(const RowSum& sum, int64_t i, int column) {
  float b = sum.b[i];
  if (sum.bias != nullptr) b += sum.bias[column];
  return sum.a[i] + b;
}

// Bound by memory: 8 bytes read and 4 written a result; the bias stays in the cache. 16 rows of 512
// values are 64 blocks of 132 multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) AddRowsKernel(const AddRowsArgs args) {
  const RowPlace at = PlaceOf(args.stride);
  if (!IsRow(args.axis, args.max_rows, at.row)) return;
  const int64_t i = int64_t{at.row} * args.stride + at.column;
  args.y[i] = SumAt(args.sum, i, at.column);
}
template <typename Launch>
auto WithKernel(const AddRowsArgs& args, const Launch& launch) {
  return launch(AddRowsKernel<float>, PerValue(args.max_rows, args.stride), args);
}

// A warp per row (layer_norm.cuh), with what comes before and after it: the sum of a residual, and
// rounding for the product that follows. The sum is written and read again by the same lane.
//
// Bound by a warp's trips along its row: 2 or 4 bytes read a result, or 8 read and 4 written for a
// sum, twice as much from the cache, and 4 written, 2 or both. 16 rows of 512 values are 4 blocks
// of 132 multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) NormalizeRowsKernel(const NormalizeRowsArgs args) {
  const int64_t row = WarpPlace();
  // The whole warp leaves: those that stay exchange values.
  if (row >= args.header->num_tokens || row >= args.max_rows) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int stride = args.segments * args.padded;
  const int64_t begin = row * stride;
  T* const x = static_cast<T*>(args.x) + begin;
  if constexpr (std::is_same_v<T, float>) {
    for (int first = lane; args.sum.a != nullptr && first < stride;
         first += kNormAtOnce * kWarpSize) {
      T sums[kNormAtOnce] = {};
#pragma unroll
      for (int k = 0; k < kNormAtOnce; ++k) {
        const int i = first + k * kWarpSize;
        if (i < stride) sums[k] = SumAt(args.sum, begin + i, i);
      }
#pragma unroll
      for (int k = 0; k < kNormAtOnce; ++k) {
        const int i = first + k * kWarpSize;
        if (i < stride) x[i] = sums[k];
      }
    }
  }
  float* const y = args.y != nullptr ? args.y + begin : nullptr;
  BFloat16* const rounded = args.rounded != nullptr ? args.rounded + begin : nullptr;
  NormalizeRow(x, args.segments, args.size, args.padded, args.weight, args.bias, args.epsilon,
               [y, rounded](int i, float value) {
                 if (y != nullptr) y[i] = value;
                 if (rounded != nullptr) rounded[i] = FromFloat<BFloat16>(value);
               });
}
template <typename Launch>
auto WithKernel(const NormalizeRowsArgs& args, const Launch& launch) {
  return WithStorageType(args.dtype, [&](auto type) {
    return launch(NormalizeRowsKernel<decltype(type)>, PerWarp(args.max_rows), args);
  });
}

// A sequence's row of a fixed field before this run, or where its next one goes; null = none.
__device__ __forceinline__ const float* RowBefore(const FieldRows& field, int b) {
  const float* page = field.in != nullptr ? field.in[b] : nullptr;
  return page != nullptr ? page + field.offset : nullptr;
}
__device__ __forceinline__ float* NextRow(const FieldRows& field, int b) {
  float* page = field.out != nullptr ? field.out[b] : nullptr;
  return page != nullptr ? page + field.offset : nullptr;
}

// Bound by memory: 4 bytes read and 4 written a result. 16 rows of 512 values are 64 blocks of 132
// multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) ShiftRowsKernel(const ShiftRowsArgs args) {
  const RowPlace at = PlaceOf(args.stride);
  if (!IsRow(args.axis, args.max_rows, at.row)) return;
  const int b = args.row_sequence[at.row];
  T value = 0.0f;
  if (at.row > args.offsets[b]) {
    value = args.x[int64_t{at.row - 1} * args.stride + at.column];
  } else if (at.column < args.width) {
    const T* before = RowBefore(args.field, b);
    if (before != nullptr) value = before[at.column];
  }
  args.y[int64_t{at.row} * args.stride + at.column] = value;
}
template <typename Launch>
auto WithKernel(const ShiftRowsArgs& args, const Launch& launch) {
  return launch(ShiftRowsKernel<float>, PerValue(args.max_rows, args.stride), args);
}

// Adds one column of a row of the axis, without its bias, to a field. A sequence's first new row
// brings that column of the older rows of its page along, if the page replaces one that other slots
// share.
__device__ __forceinline__ void AppendValue(const AppendArgs& args, const AppendedRows& added,
                                            int axis_row, int column, float value) {
  const int b = args.row_sequence[axis_row];
  const int before = added.field.rows_before[b];
  const int row = before + axis_row - args.offsets[b];
  float* page =
      added.field.pages[added.field.page_begin[b] + row / kStatePageRows] + added.field.offset;
  const float* shared = added.copied_from[b];
  if (shared != nullptr && row == before) {
    shared += added.field.offset;
#pragma unroll 4
    for (int i = 0; i < before % kStatePageRows; ++i) {
      page[i * args.width + column] = shared[i * args.width + column];
    }
  }
  if (added.bias != nullptr) value += added.bias[column];
  page[int64_t{row % kStatePageRows} * args.width + column] = value;
}

// Bound by memory: 4 bytes read and 4 written a result, and for a sequence's first one as much for
// each of up to 15 older rows of a shared page. 16 rows of 512 values are 64 blocks of 132
// multiprocessors for each field.
template <typename T>
__global__ void __launch_bounds__(kRowThreads)
    AppendKernel(const __grid_constant__ AppendArgs args) {
  const RowPlace at = PlaceOf(args.count * args.width);
  if (!IsRow(args.axis, args.max_rows, at.row)) return;
  const AppendedRows& added = args.fields[at.column / args.width];
  const int column = at.column % args.width;
  AppendValue(args, added, at.row, column, added.x[int64_t{at.row} * args.stride + column]);
}
template <typename Launch>
auto WithKernel(const AppendArgs& args, const Launch& launch) {
  return launch(AppendKernel<float>, PerValue(args.max_rows, args.count * args.width), args);
}

// Bound by a warp's trips along its row: 8 x width bytes read a result, half of them a vector that
// a sequence's rows share, and 4 written. 16 rows of 512 values are 4 blocks of 132
// multiprocessors.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) RowDotKernel(const RowDotArgs args) {
  const int64_t row = WarpPlace();
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  // The whole warp leaves: those that stay exchange values.
  if (!IsRow(args.axis, args.max_rows, row)) return;
  const int b = args.row_sequence[row];
  const T* x = args.x + row * args.x_stride;
  const T* v = args.v + int64_t{args.map != nullptr ? args.map[b] : b} * args.v_stride;
  T sum = 0.0f;
  for (int j = lane; j < args.width; j += kWarpSize) sum = fmaf(x[j], v[j], sum);
  sum = WarpSum(sum);
  // The row's one value and its padding.
  if (lane < args.y_stride) args.y[row * args.y_stride + lane] = lane == 0 ? sum : 0.0f;
}
template <typename Launch>
auto WithKernel(const RowDotArgs& args, const Launch& launch) {
  return launch(RowDotKernel<float>, PerWarp(args.max_rows), args);
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_ROW_OPERATIONS_CUH_
