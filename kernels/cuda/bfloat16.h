// bfloat16 as the CUDA backend stores it: the upper half of a float32, rounded to nearest, ties to
// even. The host's and the GPU's conversions give the same bits. Includes nothing of the toolkit,
// so that host code packs weights with it.
#ifndef SRU_KERNELS_CUDA_BFLOAT16_H_
#define SRU_KERNELS_CUDA_BFLOAT16_H_

#include <cstdint>
#include <cstring>

#include "kernels/cuda/host_and_device.h"

namespace sru::kernels::cuda {

struct BFloat16 {
  uint16_t bits;
};

SRU_HOST_DEVICE float ToFloat(float value) { return value; }

SRU_HOST_DEVICE float ToFloat(BFloat16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
#else
  const uint32_t bits = static_cast<uint32_t>(value.bits) << 16;
  float result;
  std::memcpy(&result, &bits, sizeof(result));
  return result;
#endif
}

// FromFloat<T>(value): `value` in the storage type T, float or BFloat16.
template <typename T>
SRU_HOST_DEVICE T FromFloat(float value);

template <>
SRU_HOST_DEVICE float FromFloat<float>(float value) {
  return value;
}

template <>
SRU_HOST_DEVICE BFloat16 FromFloat<BFloat16>(float value) {
  BFloat16 result;
#ifdef __CUDA_ARCH__
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
  if (is_nan) {
    bits = 0x7fff0000u;  // as the GPU's conversion does
  } else {
    bits += 0x7fffu + ((bits >> 16) & 1u);
  }
  result.bits = static_cast<uint16_t>(bits >> 16);
#endif
  return result;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_BFLOAT16_H_
