// bfloat16 values: the upper half of a float32. Stored as plain 16-bit integers.
#ifndef SRU_KERNELS_CPU_BFLOAT16_H_
#define SRU_KERNELS_CPU_BFLOAT16_H_

#include <cstdint>
#include <cstring>

namespace sru::kernels {

using BFloat16 = uint16_t;

// To the nearest, ties to even; NaN stays NaN.
inline BFloat16 ToBFloat16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<BFloat16>((bits >> 16) | 0x40u);
  return static_cast<BFloat16>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float ToFloat(BFloat16 value) {
  const uint32_t bits = static_cast<uint32_t>(value) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
}

// The float32 that is nearest among the bfloat16 values.
inline float RoundedToBFloat16(float value) { return ToFloat(ToBFloat16(value)); }

}  // namespace sru::kernels

#endif  // SRU_KERNELS_CPU_BFLOAT16_H_
