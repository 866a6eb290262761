// The CPU backend's rows (common/row_layout.h): segments of whole vectors, the padding zero. Padded
// weights are zero, so that padding stays zero through a stack.
#ifndef SRU_KERNELS_CPU_BASE_ROW_LAYOUT_H_
#define SRU_KERNELS_CPU_BASE_ROW_LAYOUT_H_

#include "kernels/common/row_layout.h"

namespace sru::kernels::cpu {

// Lanes of the widest float32 vector that is used (AVX-512); narrower vectors divide it.
inline constexpr int kRowAlignment = 16;

using RowLayout = PaddedRow<kRowAlignment>;

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_ROW_LAYOUT_H_
