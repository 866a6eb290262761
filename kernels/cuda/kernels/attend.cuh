// Multi-head attention, a warp per row and head. Keys are taken 32 at a time from the first on, with
// a running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation for softmax"),
// so that what a row sees decides its bits, and not how the rows were cut into runs. The row of y
// holds the running sum of values, and is rounded for a product at the end where one reads it.
//
// Bound by the keys and values that a row sees, 4 bytes a value and read once per row: from the second-level
// cache where rows share them. Bytes a result: 4 written, 8 read for each key. Blocks: rows x heads / 4. A
// decoding step of 16 rows and 8 heads is 32 blocks of 132 multiprocessors, each warp walking its keys
// alone: the longest sequence decides.
#ifndef SRU_KERNELS_CUDA_KERNELS_ATTEND_CUH_
#define SRU_KERNELS_CUDA_KERNELS_ATTEND_CUH_

#include "kernels/cuda/kernels/dependent_args.cuh"
#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/row_operations.cuh"
#include "kernels/cuda/kernels/rows_shape.h"
#include "kernels/cuda/kernels/shared_memory.cuh"
#include "kernels/cuda/kernels/tensor_core.cuh"
#include "kernels/state_arena.h"

namespace sru::kernels::cuda {

// Each warp's weights of 32 keys.
inline constexpr size_t kAttendSharedBytes = kRowThreads * sizeof(float);

// Up to 32 rows of keys or values: two runs of adjacent ones.
struct RowsOfWarp {
  static_assert(kWarpSize == 2 * kStatePageRows, "as many pages as runs");
  __device__ __forceinline__ const float* Row(int s) const {
    return (s < kStatePageRows ? low : high) + int64_t{s % kStatePageRows} * stride;
  }

  const float* low;
  const float* high;
  int stride;
};

// The keys or the values of a sequence: adjacent rows, or rows in pages.
class AttendRows {
 public:
  // `rows` from `first` on or, where it is null, those of a sequence's field.
  __device__ __forceinline__ AttendRows(const float* rows, int first, int stride,
                                        const FieldPages& field, int sequence, int width)
      : rows_(nullptr), pages_(nullptr), stride_(rows != nullptr ? stride : width) {
    if (rows != nullptr) {
      rows_ = rows + int64_t{first} * stride;
    } else {
      pages_ = field.pages + field.page_begin[sequence];
    }
  }

  // The `count` rows from `first` on, which is a multiple of 32. The addresses of pages are read here,
  // once, so that no load of a row waits for that of its page.
  __device__ __forceinline__ RowsOfWarp At(int first, int count) const {
    if (pages_ == nullptr) {
      const float* const low = rows_ + int64_t{first} * stride_;
      return {low, low + int64_t{kStatePageRows} * stride_, stride_};
    }
    const int page = first / kStatePageRows;
    return {pages_[page], pages_[count > kStatePageRows ? page + 1 : page], stride_};
  }

 private:
  const float* rows_;
  float* const* pages_;
  int stride_;
};

// Blocks that must fit a multiprocessor's registers; left to itself the compiler spills for more.
inline constexpr int kAttendBlocks = 4;
// Keys whose products with q are summed over the lanes together, and rows of which two values of a lane
// are on their way at a time. Where fewer rows are left, the last one is read again, and so is the lane's first
// value where a head has no second: a branch around each load would make it wait for the one before.
inline constexpr int kAttendGroup = 8;

// The sum over all lanes of their values[lane % kAttendGroup], for each lane its own; `values` is used
// up. An exchange halves the values of a lane, which takes 9 of them, where summing one value after
// the other takes 40.
template <int kHalf = kAttendGroup / 2>
__device__ __forceinline__ float SumOfLane(float (&values)[kAttendGroup], int lane) {
  if constexpr (kHalf > 0) {
    const bool upper = (lane & kHalf) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float kept = upper ? values[i + kHalf] : values[i];
      const float given = upper ? values[i] : values[i + kHalf];
      values[i] = kept + __shfl_xor_sync(0xffffffffu, given, kHalf);
    }
    return SumOfLane<kHalf / 2>(values, lane);
  } else {
    float sum = values[0];
    for (int mask = kAttendGroup; mask < kWarpSize; mask *= 2) {
      sum += __shfl_xor_sync(0xffffffffu, sum, mask);
    }
    return sum;
  }
}

// One row and head. `count` keys are seen, of which the lane's part of q, k and v begins at the
// head's columns. `weights` is the warp's shared memory. `attention` gets the weights of the keys; it
// holds their scores until the largest is known, each of which the lane reads that wrote it. Null = they
// are not wanted.
template <bool kAttention>
__device__ __forceinline__ void AttendHead(const float* q, const float* q_bias,
                                           const AttendRows& keys, int key_column, int key_size,
                                           const AttendRows& values, int value_column,
                                           int value_size, float scale, int count, float* weights,
                                           float* y, BFloat16* rounded, float* attention) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float top = -HUGE_VALF;
  float total = 0.0f;
  for (int first = 0; first < count; first += kWarpSize) {
    const int seen = count - first < kWarpSize ? count - first : kWarpSize;
    const RowsOfWarp these = keys.At(first, seen);
    float score = -HUGE_VALF;  // of key `lane` of these
#pragma unroll 1
    for (int group = 0; group < seen; group += kAttendGroup) {
      const float* rows[kAttendGroup];
      float dots[kAttendGroup] = {};  // this lane's part of each
#pragma unroll
      for (int s = 0; s < kAttendGroup; ++s) {
        rows[s] = these.Row(group + s < seen ? group + s : seen - 1) + key_column;
      }
#pragma unroll 1
      for (int j = lane; j < key_size; j += 2 * kWarpSize) {
        const int next = j + kWarpSize < key_size ? j + kWarpSize : j;
        float of_q[2] = {q[j], next != j ? q[next] : 0.0f};
        if (q_bias != nullptr) {
          of_q[0] += q_bias[j];
          if (next != j) of_q[1] += q_bias[next];
        }
        float of_rows[kAttendGroup][2];
#pragma unroll
        for (int s = 0; s < kAttendGroup; ++s) {
          of_rows[s][0] = rows[s][j];
          of_rows[s][1] = rows[s][next];
        }
#pragma unroll
        for (int s = 0; s < kAttendGroup; ++s) {
          dots[s] = fmaf(of_q[1], of_rows[s][1], fmaf(of_q[0], of_rows[s][0], dots[s]));
        }
      }
      const float dot = SumOfLane(dots, lane);
      if (lane / kAttendGroup == group / kAttendGroup && lane < seen) score = dot * scale;
    }
    if constexpr (kAttention) {
      if (attention != nullptr && lane < seen) attention[first + lane] = score;
    }
    const float new_top = fmaxf(top, WarpMax(score));
    const float keep = first == 0 ? 0.0f : expf(top - new_top);
    const float weight = lane < seen ? expf(score - new_top) : 0.0f;
    total = fmaf(total, keep, WarpSum(weight));
    top = new_top;
    weights[lane] = weight;
    SyncWarp();
    const RowsOfWarp summed = values.At(first, seen);
    const bool is_last = first + kWarpSize >= count;
#pragma unroll 1
    for (int j = lane; j < value_size; j += 2 * kWarpSize) {
      const int next = j + kWarpSize < value_size ? j + kWarpSize : j;
      float sum[2] = {};
      if (first > 0) {
        sum[0] = y[j] * keep;
        sum[1] = y[next] * keep;
      }
#pragma unroll 1
      for (int group = 0; group < seen; group += kAttendGroup) {
        float of_rows[kAttendGroup][2];
#pragma unroll
        for (int s = 0; s < kAttendGroup; ++s) {
          const float* const row =
              summed.Row(group + s < seen ? group + s : seen - 1) + value_column;
          of_rows[s][0] = row[j];
          of_rows[s][1] = row[next];
        }
        // The weights of the rows that are read again are 0.
#pragma unroll
        for (int s = 0; s < kAttendGroup; ++s) {
          sum[0] = fmaf(weights[group + s], of_rows[s][0], sum[0]);
          sum[1] = fmaf(weights[group + s], of_rows[s][1], sum[1]);
        }
      }
      const auto store = [&](int column, float value) {
        if (is_last) value /= total;
        y[column] = value;
        if (is_last && rounded != nullptr) rounded[column] = FromFloat<BFloat16>(value);
      };
      store(j, sum[0]);
      if (next != j) store(next, sum[1]);
    }
    SyncWarp();  // before the weights are replaced
  }
  if (count <= 0) {
    for (int j = lane; j < value_size; j += kWarpSize) {
      y[j] = 0.0f;
      if (rounded != nullptr) rounded[j] = BFloat16{};
    }
  }
  if constexpr (kAttention) {
    if (attention == nullptr) return;
    for (int s = lane; s < count; s += kWarpSize) attention[s] = expf(attention[s] - top) / total;
  }
}

// kAttention: the weights of head 0 are wanted.
template <typename T, bool kAttention>
__global__ void __launch_bounds__(kRowThreads, kAttendBlocks)
    AttendKernel(const DependentArgs<AttendArgs> dependent) {
  const AttendArgs& args = dependent.Await();
  const int64_t place = WarpPlace();
  const int64_t row = place / args.heads;
  const int head = static_cast<int>(place % args.heads);
  // The whole warp leaves: those that stay exchange values.
  if (!IsRow(args.axis, args.max_rows, row)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int b = args.row_sequence[row];
  const int length = args.offsets[b + 1] - args.offsets[b];
  const int key_size = args.key_width / args.heads;
  const int value_size = args.value_width / args.heads;
  const T* q = args.q + row * args.q_stride + head * key_size;
  const T* q_bias = args.q_bias != nullptr ? args.q_bias + head * key_size : nullptr;
  T* y = args.y + row * args.y_stride;
  BFloat16* rounded = args.rounded != nullptr ? args.rounded + row * args.y_stride : nullptr;
  T* weights = reinterpret_cast<T*>(DynamicShared()) + threadIdx.x / kWarpSize * kWarpSize;
  // Later rows of the sequence that the row does not see.
  const int hidden = args.causal ? args.offsets[b + 1] - 1 - static_cast<int>(row) : 0;
  int first = 0;
  int count = 0;
  if (args.keys != nullptr) {
    const int other = args.map != nullptr ? args.map[b] : b;
    first = args.key_offsets[other];
    count = args.key_offsets[other + 1] - first;
  } else {
    count = args.key_field.rows_before[b] + (args.appended ? length : 0);
  }
  const AttendRows keys(args.keys, first, args.key_stride, args.key_field, b, args.key_width);
  const AttendRows values(args.values, first, args.value_stride, args.value_field, b,
                          args.value_width);
  float* attention = nullptr;
  if constexpr (kAttention) {
    if (head == 0) {
      attention = args.attention + args.attention_begin[b] + (row - args.offsets[b]) * count;
      const int seen = count - hidden > 0 ? count - hidden : 0;
      for (int s = seen + lane; s < count; s += kWarpSize) attention[s] = 0.0f;
    }
  }
  AttendHead<kAttention>(q, q_bias, keys, head * key_size, key_size, values, head * value_size,
                         value_size, args.scale, count - hidden, weights, y + head * value_size,
                         rounded != nullptr ? rounded + head * value_size : nullptr, attention);
  // The padding, by the last head's warp.
  if (head == args.heads - 1 && args.value_width + lane < args.y_stride) {
    y[args.value_width + lane] = 0.0f;
    if (rounded != nullptr) rounded[args.value_width + lane] = BFloat16{};
  }
}
template <typename Launch>
auto WithKernel(const AttendArgs& args, const Launch& launch) {
  LaunchShape shape = PerWarp(int64_t{args.max_rows} * args.heads);
  shape.shared_bytes = kAttendSharedBytes;
  return args.attention != nullptr ? launch(AttendKernel<float, true>, shape, args)
                                   : launch(AttendKernel<float, false>, shape, args);
}
inline std::vector<AttendArgs> KernelVariants(const AttendArgs& args) {
  static float attention = 0;
  std::vector<AttendArgs> variants(2, args);
  variants[1].attention = &attention;
  return variants;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_ATTEND_CUH_
