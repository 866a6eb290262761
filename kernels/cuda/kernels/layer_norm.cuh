// Layer norm of rows, a warp per row, in float32 and in two passes (mean, then variance), whatever
// the storage type.
#ifndef SRU_KERNELS_CUDA_KERNELS_LAYER_NORM_CUH_
#define SRU_KERNELS_CUDA_KERNELS_LAYER_NORM_CUH_

#include "kernels/cuda/kernels/device_math.cuh"
#include "kernels/cuda/kernels/rows_shape.h"

namespace sru::kernels::cuda {

constexpr float kLargestVariance = 1e30f;
constexpr float kHugeRowFactor = 0x1p-80f;  // the square of the largest float then fits

// Values that a lane reads before it writes any.
constexpr int kNormAtOnce = 8;

// Calls write(i, y_i) for the values of a row of `segments` and their padding, by a warp: lane l
// reads and writes those at l, l + 32 and so on. write() may write to x: it is not read through the
// read-only path.
template <typename T, typename Write>
__device__ __forceinline__ void NormalizeRow(const T* x, int segments, int size, int padded,
                                             const float* weight, const float* bias, float epsilon,
                                             const Write& write) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int stride = segments * padded;
  const int width = segments * size;
  float factor = 1.0f;
  float mean;
  float variance;
  while (true) {
    float sum = 0.0f;
    for (int i = lane; i < width; i += kWarpSize) {
      sum += ToFloat(x[i < size ? i : i - size + padded]) * factor;
    }
    mean = WarpSum(sum) / static_cast<float>(width);
    float squares = 0.0f;
    for (int i = lane; i < width; i += kWarpSize) {
      const float d = ToFloat(x[i < size ? i : i - size + padded]) * factor - mean;
      squares = fmaf(d, d, squares);
    }
    variance = WarpSum(squares) / static_cast<float>(width);
    // The same for the whole warp. Squares of huge values overflow: once more, scaled down.
    if (variance <= kLargestVariance || factor != 1.0f) break;
    factor = kHugeRowFactor;
  }
  const float scale = 1.0f / sqrtf(variance + epsilon * factor * factor);
  // Several values are read before any is written: y may be x, so that the compiler cannot do so.
  for (int first = lane; first < stride; first += kNormAtOnce * kWarpSize) {
    float values[kNormAtOnce], weights[kNormAtOnce], biases[kNormAtOnce];
#pragma unroll
    for (int k = 0; k < kNormAtOnce; ++k) {
      const int i = first + k * kWarpSize;
      if (i < stride) {
        values[k] = ToFloat(x[i]);
        weights[k] = Unpack(LoadReadOnly<1>(weight + i), 0);
        biases[k] = Unpack(LoadReadOnly<1>(bias + i), 0);
      }
    }
#pragma unroll
    for (int k = 0; k < kNormAtOnce; ++k) {
      const int i = first + k * kWarpSize;
      // weight and bias are zero in the padding; x is finite there.
      if (i < stride) write(i, fmaf((values[k] * factor - mean) * scale, weights[k], biases[k]));
    }
  }
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_LAYER_NORM_CUH_
