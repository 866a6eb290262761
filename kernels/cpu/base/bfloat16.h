// bfloat16 values as the CPU backend stores them: plain 16-bit integers.
#ifndef SRU_KERNELS_CPU_BASE_BFLOAT16_H_
#define SRU_KERNELS_CPU_BASE_BFLOAT16_H_

#include <cstddef>
#include <cstdint>

#include "kernels/common/bfloat16.h"

namespace sru::kernels::cpu {

using BFloat16 = uint16_t;

// The values to which a data type rounds what is kept in float32.
enum class Rounding { kNone, kBFloat16 };

inline BFloat16 ToBFloat16(float value) { return BFloat16Bits(value); }
inline float ToFloat(BFloat16 value) { return FloatOfBFloat16Bits(value); }
// The float32 value of the nearest bfloat16.
inline float RoundedToBFloat16(float value) { return ToFloat(ToBFloat16(value)); }

// Conversion of whole rows, to the nearest, ties to even.
void ToBFloat16Row(const float* from, size_t size, BFloat16* to);
void ToFloatRow(const BFloat16* from, size_t size, float* to);
// Leaves each value at the nearest that there is.
void RoundRow(Rounding rounding, float* values, size_t size);

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_BFLOAT16_H_
