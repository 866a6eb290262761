// Layer norm of padded rows (row_layout.h):
//   y = (x - mean) / sqrt(variance + kLayerNormEpsilon) * weight + bias
// with mean and (biased) variance over the values of the row that are not padding.
#ifndef SRU_KERNELS_CPU_BASE_LAYER_NORM_H_
#define SRU_KERNELS_CPU_BASE_LAYER_NORM_H_

#include "kernels/cpu/base/row_layout.h"

namespace sru::kernels::cpu {

// x, y [rows][layout.stride()], weight and bias [layout.stride()] with zeros in the padding. y may
// be x.
void NormalizeRows(const RowLayout& layout, const float* weight, const float* bias, const float* x,
                   int rows, float* y);

// One row in float64, without its padding: what is done with a variance above kLargestVariance,
// whose squares may not fit into float32.
inline constexpr float kLargestVariance = 1e30f;
void NormalizeHugeRow(const RowLayout& layout, const float* weight, const float* bias,
                      float epsilon, const float* x, float* y);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_LAYER_NORM_H_
