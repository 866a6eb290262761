// Multi-head attention, a warp per row and head. Keys are taken 32 at a time from the first on, with
// a running maximum and sum (Milakov and Gimelshein, "Online normalizer calculation for softmax"),
// so that what a row sees decides its bits, and not how the rows were cut into runs. The row of y
// holds the running sum of values.
#ifndef SRU_KERNELS_CUDA_ATTEND_CUH_
#define SRU_KERNELS_CUDA_ATTEND_CUH_

#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/operation_args.h"
#include "kernels/cuda/row_operations.cuh"
#include "kernels/cuda/rows_shape.h"
#include "kernels/cuda/shared_memory.cuh"
#include "kernels/cuda/tensor_core.cuh"
#include "kernels/state_arena.h"

namespace sru::kernels::cuda {

// Each warp's weights of 32 keys.
inline constexpr size_t kAttendSharedBytes = kRowThreads * sizeof(float);

// The keys or the values of a sequence: adjacent rows, or rows in pages.
class AttendRows {
 public:
  __device__ __forceinline__ AttendRows(const float* rows, int first, int stride)
      : rows_(rows + int64_t{first} * stride), pages_(nullptr), stride_(stride) {}
  __device__ __forceinline__ AttendRows(const FieldPages& field, int sequence, int width)
      : rows_(nullptr), pages_(field.pages + field.page_begin[sequence]), stride_(width) {}

  __device__ __forceinline__ const float* Row(int s) const {
    if (pages_ == nullptr) return rows_ + int64_t{s} * stride_;
    return pages_[s / kStatePageRows] + int64_t{s % kStatePageRows} * stride_;
  }

 private:
  const float* rows_;
  float* const* pages_;
  int stride_;
};

// One row and head. `count` keys are seen, of which the lane's part of q, k and v begins at the
// head's columns. `weights` is the warp's shared memory.
__device__ __forceinline__ void AttendHead(const float* q, const AttendRows& keys, int key_column,
                                           int key_size, const AttendRows& values, int value_column,
                                           int value_size, float scale, int count, float* weights,
                                           float* y) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  float top = -HUGE_VALF;
  float total = 0.0f;
  for (int first = 0; first < count; first += kWarpSize) {
    const int seen = count - first < kWarpSize ? count - first : kWarpSize;
    float score = -HUGE_VALF;  // of key `lane` of these
    for (int s = 0; s < seen; ++s) {
      const float* k = keys.Row(first + s) + key_column;
      float dot = 0.0f;
      for (int j = lane; j < key_size; j += kWarpSize) dot = fmaf(q[j], k[j], dot);
      dot = WarpSum(dot);
      if (s == lane) score = dot * scale;
    }
    const float new_top = fmaxf(top, WarpMax(score));
    const float keep = first == 0 ? 0.0f : expf(top - new_top);
    const float weight = lane < seen ? expf(score - new_top) : 0.0f;
    total = fmaf(total, keep, WarpSum(weight));
    top = new_top;
    weights[lane] = weight;
    SyncWarp();
    for (int j = lane; j < value_size; j += kWarpSize) {
      float sum = first == 0 ? 0.0f : y[j] * keep;
      for (int s = 0; s < seen; ++s) {
        sum = fmaf(weights[s], values.Row(first + s)[value_column + j], sum);
      }
      y[j] = sum;
    }
    SyncWarp();  // before the weights are replaced
  }
  for (int j = lane; j < value_size; j += kWarpSize) y[j] = count > 0 ? y[j] / total : 0.0f;
}

// A template only so that a header may hold it.
template <typename T>
__global__ void __launch_bounds__(kRowThreads) AttendKernel(const AttendArgs args) {
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
  T* y = args.y + row * args.y_stride;
  T* weights = reinterpret_cast<T*>(DynamicShared()) + threadIdx.x / kWarpSize * kWarpSize;
  // Later rows of the sequence that the row does not see.
  const int hidden = args.causal ? args.offsets[b + 1] - 1 - static_cast<int>(row) : 0;
  if (args.keys != nullptr) {
    const int other = args.map != nullptr ? args.map[b] : b;
    const int first = args.key_offsets[other];
    AttendHead(q, AttendRows(args.keys, first, args.key_stride), head * key_size, key_size,
               AttendRows(args.values, first, args.value_stride), head * value_size, value_size,
               args.scale, args.key_offsets[other + 1] - first - hidden, weights,
               y + head * value_size);
  } else {
    const int count = args.key_field.rows_before[b] + (args.appended ? length : 0);
    AttendHead(q, AttendRows(args.key_field, b, args.key_width), head * key_size, key_size,
               AttendRows(args.value_field, b, args.value_width), head * value_size, value_size,
               args.scale, count - hidden, weights, y + head * value_size);
  }
  // The padding, by the last head's warp.
  if (head == args.heads - 1 && args.value_width + lane < args.y_stride) {
    y[args.value_width + lane] = 0.0f;
  }
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_ATTEND_CUH_
