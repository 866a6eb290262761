// Multi-head attention, a warp per row and head. Keys are taken 32 at a time from the first on,
// with a running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation for
// softmax"), so that what a row sees decides its bits, and not how the rows were cut into runs. The
// row of y holds the running sum of values, and is rounded for a product at the end where one reads
// it.
//
// Bound by the keys and values that a row sees, 4 bytes a value and read once per row: from the
// second-level cache where rows share them. Bytes a result: 4 written, 8 read for each key. Blocks:
// rows x heads / 4. A decoding step of 16 rows and 8 heads is 32 blocks of 132 multiprocessors,
// each warp walking its keys alone: the longest sequence decides. A warp waits for memory four
// times before its first sum (for the row's sequence, its length, its pages, its keys and values)
// and once for each further 32 keys.
#ifndef SRU_KERNELS_CUDA_KERNELS_ATTEND_CUH_
#define SRU_KERNELS_CUDA_KERNELS_ATTEND_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/operation_args.h"
#include "kernels/cuda/kernels/row_operations.cuh"
#include "kernels/cuda/kernels/rows_shape.h"
#include "kernels/cuda/kernels/shared_memory.cuh"
#include "kernels/cuda/kernels/tensor_core.cuh"
#include "kernels/state_arena.h"

namespace sru::kernels::cuda {

// Each warp's weights of 32 keys, and two values of a lane for each of them.
inline constexpr int kAttendWarpFloats = kWarpSize + 2 * kWarpSize * kWarpSize;
inline constexpr size_t kAttendSharedBytes = kRowWarps * kAttendWarpFloats * sizeof(float);

// Up to 32 rows of keys or values: two runs of adjacent ones.
struct RowsOfWarp {
  static_assert(kWarpSize == 2 * kStatePageRows, "as many pages as runs");
  // A value of row s of `count`; past the last row, of the run's last one, which is read again
  // without a branch. The run has a row. Offsets of 32 bits take half as many instructions as those
  // of 64.
  __device__ __forceinline__ const float* At(int s, int count, int column) const {
    const bool is_low = s < kStatePageRows;
    const int place = is_low ? s : s - kStatePageRows;
    const int last = count - 1 - (is_low ? 0 : kStatePageRows);
    const float* const run = is_low ? low : high;
    return run + static_cast<unsigned>((place < last ? place : last) * stride + column);
  }

  const float* low;
  const float* high;
  int stride;
};

// A head's columns of the keys or the values of a sequence: adjacent rows, or rows in pages.
class AttendRows {
 public:
  // The head begins `column` values behind the first row, or a page, begins.
  __device__ __forceinline__ AttendRows(const float* rows, int stride, int64_t column)
      : at_(rows), in_pages_(false), stride_(stride), column_(column) {}
  __device__ __forceinline__ AttendRows(float* const* pages, int stride, int64_t column)
      : at_(pages), in_pages_(true), stride_(stride), column_(column) {}

  // Leaves out the first rows, which are adjacent.
  __device__ __forceinline__ void Skip(int rows) {
    at_ = static_cast<const float*>(at_) + int64_t{rows} * stride_;
  }

  // `count` rows from `first` on, which is a multiple of 32, or the first 32 of these. The
  // addresses of pages are read here, once, so that no load of a row waits for that of its page.
  __device__ __forceinline__ RowsOfWarp From(int first, int count) const {
    if (!in_pages_) {
      const float* const low = static_cast<const float*>(at_) + int64_t{first} * stride_ + column_;
      return {low, low + int64_t{kStatePageRows} * stride_, stride_};
    }
    const float* const* const pages =
        static_cast<const float* const*>(at_) + first / kStatePageRows;
    return {pages[0] + column_, pages[count > kStatePageRows ? 1 : 0] + column_, stride_};
  }

 private:
  const void* at_;
  bool in_pages_;
  int stride_;
  int64_t column_;
};

// Blocks that must fit a multiprocessor's registers: a fourth would spill, for 64 registers hold
// keys.
inline constexpr int kAttendBlocks = 3;
// Keys whose products with q are summed over the lanes together. Only whole groups without a row
// are left out.
inline constexpr int kAttendGroup = 8;

// A lane's columns of a head: `first`, and `second` kWarpSize further on or, if the head has none
// there, `first` again: a branch around each load would make it wait for the one before.
struct LaneColumns {
  __device__ __forceinline__ LaneColumns(int column, int size)
      : first(column < size ? column : size - 1),
        second(column + kWarpSize < size ? column + kWarpSize : first) {}

  int first;
  int second;
};

// Calls use(s, i, address of column i of row s) for kRows rows from row `begin` on, of `count` in
// all. No load that it makes waits for another one.
template <int kRows, typename Use>
__device__ __forceinline__ void ForEachOfLane(RowsOfWarp rows, int begin, int count,
                                              LaneColumns columns, const Use& use) {
  // Else what the addresses of an earlier call were made of stays in registers for this one.
  Keep(rows.stride);
  Keep(count);
#pragma unroll
  for (int s = 0; s < kRows; ++s) {
    if (begin + s / kAttendGroup * kAttendGroup >= count) break;
    use(s, 0, rows.At(begin + s, count, columns.first));
    use(s, 1, rows.At(begin + s, count, columns.second));
  }
}

// Keys, in registers.
template <int kRows>
struct LaneKeys {
  __device__ __forceinline__ void Load(const RowsOfWarp& rows, int begin, int count,
                                       LaneColumns columns) {
    ForEachOfLane<kRows>(rows, begin, count, columns,
                         [&](int s, int i, const float* from) { of[s][i] = *from; });
  }

  float of[kRows][2];
};

// Values, on their way to shared memory while keys are in registers, which have no room for both. A
// lane reads what it has copied itself.
class LaneValues {
 public:
  __device__ __forceinline__ LaneValues(float* of_warp, int lane)
      : of_lane_(of_warp + lane), address_(SharedAddressOf(of_warp + lane)) {}

  __device__ __forceinline__ void BeginCopies(const RowsOfWarp& rows, int count,
                                              LaneColumns columns) const {
    ForEachOfLane<kWarpSize>(rows, 0, count, columns, [&](int s, int i, const float* from) {
      BeginCopy<sizeof(float)>(address_ + Place(s, i) * static_cast<int>(sizeof(float)), from);
    });
    CommitCopies();
  }
  __device__ __forceinline__ float At(int s, int i) const { return of_lane_[Place(s, i)]; }

 private:
  static __device__ __forceinline__ int Place(int s, int i) { return (2 * s + i) * kWarpSize; }

  const float* const of_lane_;
  const SharedAddress address_;
};

// A lane's values of q + bias in columns `column` and kWarpSize further on: zeros where the head
// has none.
struct LaneQuery {
  __device__ __forceinline__ LaneQuery(const float* q, const float* bias, int column, int size)
      : of{} {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = column + i * kWarpSize;
      if (j < size) of[i] = bias != nullptr ? q[j] + bias[j] : q[j];
    }
  }
  __device__ __forceinline__ void AddTo(float (&dots)[kAttendGroup], const float (*keys)[2]) const {
#pragma unroll
    for (int s = 0; s < kAttendGroup; ++s) {
      dots[s] = fmaf(of[1], keys[s][1], fmaf(of[0], keys[s][0], dots[s]));
    }
  }

  float of[2];
};

// The sum over all lanes of their values[lane % kAttendGroup], for each lane its own; `values` is
// used up. An exchange halves the values of a lane, which takes 9 of them, where summing one value
// after the other takes 40.
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

// One row and head. `count` keys are seen. q, q_bias and y begin at the head's columns. `shared` is
// the warp's shared memory. `attention` gets the weights of the keys; it holds their scores until
// the largest is known, each of which the lane reads that wrote it. Null = they are not wanted.
template <bool kAttention>
__device__ __forceinline__ void AttendHead(const float* q, const float* q_bias,
                                           const AttendRows& keys, int key_size,
                                           const AttendRows& values, int value_size, float scale,
                                           int count, float* shared, float* y, BFloat16* rounded,
                                           float* attention) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const LaneColumns key_columns(lane, key_size);
  const LaneColumns value_columns(lane, value_size);
  float* const weights = shared;
  const LaneValues of_values(shared + kWarpSize, lane);
  float top = -HUGE_VALF;
  float total = 0.0f;
  for (int first = 0; first < count; first += kWarpSize) {
    const int seen = count - first < kWarpSize ? count - first : kWarpSize;
    const bool is_last = first + kWarpSize >= count;
    const RowsOfWarp these = keys.From(first, seen);
    const RowsOfWarp summed = values.From(first, seen);
    LaneKeys<kWarpSize> of_keys;
    of_keys.Load(these, 0, seen, key_columns);
    of_values.BeginCopies(summed, seen, value_columns);
    const LaneQuery of_q(q, q_bias, lane, key_size);
    float score = -HUGE_VALF;  // of key `lane` of these
#pragma unroll
    for (int group = 0; group < kWarpSize; group += kAttendGroup) {
      if (group >= seen) break;
      float dots[kAttendGroup] = {};  // this lane's part of each
      of_q.AddTo(dots, &of_keys.of[group]);
#pragma unroll 1
      for (int j = lane + 2 * kWarpSize; j < key_size; j += 2 * kWarpSize) {
        LaneKeys<kAttendGroup> more;
        more.Load(these, group, seen, LaneColumns(j, key_size));
        LaneQuery(q, q_bias, j, key_size).AddTo(dots, more.of);
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
    WaitForCopies<0>();
    SyncWarp();
#pragma unroll 1
    for (int j = lane; j < value_size; j += 2 * kWarpSize) {
      const LaneColumns columns(j, value_size);
      if (j != lane) {
        of_values.BeginCopies(summed, seen, columns);
        WaitForCopies<0>();
      }
      float sum[2] = {};
      if (first > 0) {
        sum[0] = y[columns.first] * keep;
        sum[1] = y[columns.second] * keep;
      }
      // The weights of the rows that are read again are 0.
#pragma unroll
      for (int s = 0; s < kWarpSize; ++s) {
        if (s / kAttendGroup * kAttendGroup >= seen) break;
        sum[0] = fmaf(weights[s], of_values.At(s, 0), sum[0]);
        sum[1] = fmaf(weights[s], of_values.At(s, 1), sum[1]);
      }
      const auto store = [&](int column, float value) {
        if (is_last) value /= total;
        y[column] = value;
        if (is_last && rounded != nullptr) rounded[column] = FromFloat<BFloat16>(value);
      };
      store(columns.first, sum[0]);
      if (columns.second != columns.first) store(columns.second, sum[1]);
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
__global__ void __launch_bounds__(kRowThreads, kAttendBlocks) AttendKernel(const AttendArgs args) {
  const auto place = static_cast<unsigned>(WarpPlace());
  const auto heads = static_cast<unsigned>(args.heads);
  const int row = static_cast<int>(place / heads);
  const int head = static_cast<int>(place % heads);
  // Read beside the header, which says whether the row is one of the batch: all rows of the bucket
  // have a place there.
  int b = row < args.max_rows ? args.row_sequence[row] : 0;
  Keep(b);
  // The whole warp leaves: those that stay exchange values.
  if (!IsRow(args.axis, args.max_rows, row)) return;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int key_size = args.key_width / args.heads;
  const int value_size = args.value_width / args.heads;
  const T* q = args.q + int64_t{row} * args.q_stride + head * key_size;
  const T* q_bias = args.q_bias != nullptr ? args.q_bias + head * key_size : nullptr;
  T* y = args.y + int64_t{row} * args.y_stride;
  BFloat16* rounded =
      args.rounded != nullptr ? args.rounded + int64_t{row} * args.y_stride : nullptr;
  T* shared = reinterpret_cast<T*>(DynamicShared()) + threadIdx.x / kWarpSize * kAttendWarpFloats;
  // All that is read of the sequence, before any of it is used.
  const int begin = args.offsets[b];
  const int end = args.offsets[b + 1];
  int count = 0;
  AttendRows keys(args.keys, args.key_stride, head * key_size);
  AttendRows values(args.values, args.value_stride, head * value_size);
  if (args.keys != nullptr) {
    const int other = args.map != nullptr ? args.map[b] : b;
    const int first = args.key_offsets[other];
    count = args.key_offsets[other + 1] - first;
    keys.Skip(first);
    values.Skip(first);
  } else {
    const int key_page = args.key_field.page_begin[b];
    const int value_page = args.value_field.page_begin[b];
    count = args.key_field.rows_before[b] + (args.appended ? end - begin : 0);
    keys = AttendRows(args.key_field.pages + key_page, args.key_width,
                      args.key_field.offset + head * key_size);
    values = AttendRows(args.value_field.pages + value_page, args.value_width,
                        args.value_field.offset + head * value_size);
  }
  // Later rows of the sequence that the row does not see.
  const int hidden = args.causal ? end - 1 - row : 0;
  float* attention = nullptr;
  if constexpr (kAttention) {
    if (head == 0) {
      attention = args.attention + args.attention_begin[b] + int64_t{row - begin} * count;
      const int seen = count - hidden > 0 ? count - hidden : 0;
      for (int s = seen + lane; s < count; s += kWarpSize) attention[s] = 0.0f;
    }
  }
  AttendHead<kAttention>(q, q_bias, keys, key_size, values, value_size, args.scale, count - hidden,
                         shared, y + head * value_size,
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
