// bfloat16 as the CUDA backend stores it. The host's and the GPU's conversions give the same bits.
// Includes nothing of the toolkit, so that host code packs weights with it.
#ifndef SRU_KERNELS_CUDA_KERNELS_BFLOAT16_H_
#define SRU_KERNELS_CUDA_KERNELS_BFLOAT16_H_

#include <cstdint>

#include "kernels/common/bfloat16.h"
#include "kernels/host_and_device.h"

namespace sru::kernels::cuda {

struct BFloat16 {
  uint16_t bits;
};

SRU_HOST_DEVICE float ToFloat(float value) { return value; }

SRU_HOST_DEVICE float ToFloat(BFloat16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
#else
  return FloatOfBFloat16Bits(value.bits);
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
  // The GPU's conversion makes the same NaN of all of them.
  result.bits = value != value ? uint16_t{0x7fff} : BFloat16Bits(value);
#endif
  return result;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_BFLOAT16_H_
