// bfloat16 is the upper half of a float32. What the backends' conversions have in common; the types
// and the treatment of NaN, which the hardware decides, are their own (cpu/base/bfloat16.h,
// cuda/kernels/bfloat16.h).
#ifndef SRU_KERNELS_COMMON_BFLOAT16_H_
#define SRU_KERNELS_COMMON_BFLOAT16_H_

#include <cstdint>
#include <cstring>

namespace sru::kernels {

// The nearest bfloat16, ties to even; NaN stays a NaN, made quiet, with the upper bits of its
// payload.
inline uint16_t BFloat16Bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  // Rounding could carry a NaN into infinity.
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float FloatOfBFloat16Bits(uint16_t bits) {
  const uint32_t word = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

}  // namespace sru::kernels

#endif  // SRU_KERNELS_COMMON_BFLOAT16_H_
