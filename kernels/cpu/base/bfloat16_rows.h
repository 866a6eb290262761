// Conversion of whole rows between float32 and bfloat16, to the nearest, ties to even.
#ifndef SRU_KERNELS_CPU_BASE_BFLOAT16_ROWS_H_
#define SRU_KERNELS_CPU_BASE_BFLOAT16_ROWS_H_

#include <cstddef>

#include "kernels/cpu/base/bfloat16.h"

namespace sru::kernels::cpu {

void ToBFloat16Row(const float* from, size_t size, BFloat16* to);
void ToFloatRow(const BFloat16* from, size_t size, float* to);
// Leaves each value at the nearest that there is.
void RoundRow(Rounding rounding, float* values, size_t size);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_BFLOAT16_ROWS_H_
