// What the kernels do with single values and short vectors. Compiles for the GPU with the
// hardware's own instructions and for the host with the standard library's functions.
#ifndef SRU_KERNELS_CUDA_KERNELS_DEVICE_MATH_CUH_
#define SRU_KERNELS_CUDA_KERNELS_DEVICE_MATH_CUH_

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/common/gate_scale.h"
#include "kernels/cuda/kernels/bfloat16.h"
#include "kernels/stack_spec.h"

namespace sru::kernels::cuda {

// kSize adjacent values as they are in memory, loaded and stored by one instruction. They are
// kept in whole words and unpacked where they are used: an instruction on half of a word, placed at
// the load, would wait for the load there.
template <typename T, int kSize>
struct alignas(kSize * sizeof(T)) Packed {
  static constexpr int kWords = kSize * static_cast<int>(sizeof(T)) / 4;
  uint32_t words[kWords];
};

__device__ __forceinline__ float BitsToFloat(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
#endif
}

// Value i of a packed vector.
template <int kSize>
__device__ __forceinline__ float Unpack(const Packed<float, kSize>& v, int i) {
  return BitsToFloat(v.words[i]);
}

template <int kSize>
__device__ __forceinline__ float Unpack(const Packed<BFloat16, kSize>& v, int i) {
  const uint32_t word = v.words[i / 2];
  return BitsToFloat(i % 2 == 0 ? word << 16 : word & 0xffff0000u);
}

__device__ __forceinline__ uint32_t FloatToBits(float value) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(value);
#else
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
#endif
}

// The packed form of values[0..kSize).
template <typename T, int kSize>
struct Pack;

template <int kSize>
struct Pack<float, kSize> {
  static __device__ __forceinline__ Packed<float, kSize> From(const float* values) {
    Packed<float, kSize> v;
#pragma unroll
    for (int i = 0; i < kSize; ++i) v.words[i] = FloatToBits(values[i]);
    return v;
  }
};

template <int kSize>
struct Pack<BFloat16, kSize> {
  static __device__ __forceinline__ Packed<BFloat16, kSize> From(const float* values) {
    Packed<BFloat16, kSize> v;
#pragma unroll
    for (int i = 0; i < kSize / 2; ++i) {
#ifdef __CUDA_ARCH__
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;"
          : "=r"(v.words[i])
          : "f"(values[2 * i + 1]), "f"(values[2 * i]));
#else
      const uint32_t low = FromFloat<BFloat16>(values[2 * i]).bits;
      const uint32_t high = FromFloat<BFloat16>(values[2 * i + 1]).bits;
      v.words[i] = low | high << 16;
#endif
    }
    return v;
  }
};

#ifdef __CUDA_ARCH__
// The built-in vector of this many words.
template <int kWords>
struct WordVector;
template <>
struct WordVector<1> {
  using Type = unsigned;
};
template <>
struct WordVector<2> {
  using Type = uint2;
};
template <>
struct WordVector<4> {
  using Type = uint4;
};
#endif

// Through the read-only path: for what no kernel of a batch writes. Nothing may write there while
// the kernel runs.
template <int kSize, typename T>
__device__ __forceinline__ Packed<T, kSize> LoadReadOnly(const T* p) {
#ifdef __CUDA_ARCH__
  using Word = typename WordVector<Packed<T, kSize>::kWords>::Type;
  const Word raw = __ldg(reinterpret_cast<const Word*>(p));
  Packed<T, kSize> v;
  memcpy(&v, &raw, sizeof(v));
  return v;
#else
  Packed<T, kSize> v;
  std::memcpy(&v, p, sizeof(v));
  return v;
#endif
}

// What this block has written, or the kernel before.
template <int kSize, typename T>
__device__ __forceinline__ Packed<T, kSize> Load(const T* p) {
  Packed<T, kSize> v;
#ifdef __CUDA_ARCH__
  using Word = typename WordVector<Packed<T, kSize>::kWords>::Type;
  const Word raw = *reinterpret_cast<const Word*>(p);
  memcpy(&v, &raw, sizeof(v));
#else
  std::memcpy(&v, p, sizeof(v));
#endif
  return v;
}

template <int kSize, typename T>
__device__ __forceinline__ void Store(T* p, const Packed<T, kSize>& v) {
#ifdef __CUDA_ARCH__
  using Word = typename WordVector<Packed<T, kSize>::kWords>::Type;
  Word raw;
  memcpy(&raw, &v, sizeof(v));
  *reinterpret_cast<Word*>(p) = raw;
#else
  std::memcpy(p, &v, sizeof(v));
#endif
}

// values[0..kSize) in the storage type, by one instruction.
template <int kSize, typename T>
__device__ __forceinline__ void StoreValues(T* p, const float* values) {
  if constexpr (kSize == 1) {
    *p = FromFloat<T>(values[0]);
  } else {
    Store<kSize>(p, Pack<T, kSize>::From(values));
  }
}

// 2^x with a relative error of 2^-22; 0 and infinity outside of the range.
__device__ __forceinline__ float Exp2(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return std::exp2(x);
#endif
}

// 1 / x within one unit in the last place; 0 for infinity.
__device__ __forceinline__ float Reciprocal(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

// tanh with a relative error of 2^-11. On the host, tests choose the error (launch_shim.h).
__device__ __forceinline__ float TanhApproximate(float x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif defined(__CUDACC__)
  return std::tanh(x);  // where nvcc compiles the host's code, which does not run it
#else
  return HostTanh(x);
#endif
}

// The scan's functions, by storage type: exact ones for float32, the fast tanh where the values
// that go in are rounded to 8 bits anyway.
template <typename T>
struct ScanMath;

template <>
struct ScanMath<float> {
  // sigmoid(x) for z = kExp2GateScale x.
  static __device__ __forceinline__ float Gate(float z) { return Reciprocal(1.0f + Exp2(z)); }
  // 1 - sigmoid(x), with the relative error of its own however small it is.
  static __device__ __forceinline__ float OneMinusGate(float z) { return Gate(-z); }
  // 2 sigmoid(2x) - 1; no infinity meets another on the way.
  static __device__ __forceinline__ float Tanh(float x) {
    return fmaf(2.0f, Gate(2.0f * kExp2GateScale * x), -1.0f);
  }
};

template <>
struct ScanMath<BFloat16> {
  // sigmoid(x) for z = kTanhGateScale x.
  static __device__ __forceinline__ float Gate(float z) {
    return fmaf(0.5f, TanhApproximate(z), 0.5f);
  }
  // 1 - sigmoid(x).
  static __device__ __forceinline__ float OneMinusGate(float z) {
    return fmaf(-0.5f, TanhApproximate(z), 0.5f);
  }
  static __device__ __forceinline__ float Tanh(float x) { return TanhApproximate(x); }
};

// g of a step's kDims states, in place. One branch for all, which a whole block takes alike.
template <typename T, int kDims>
__device__ __forceinline__ void Activate(Activation activation, float (&h)[kDims]) {
  switch (activation) {
    case Activation::kIdentity:
      return;
    case Activation::kTanh:
#pragma unroll
      for (int d = 0; d < kDims; ++d) h[d] = ScanMath<T>::Tanh(h[d]);
      return;
  }
}

// Over the 32 lanes of a warp, all of which must call; every lane gets the same bits.
template <typename T>
__device__ __forceinline__ T WarpSum(T value) {
  for (int mask = 16; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffffu, value, mask);
  return value;
}

__device__ __forceinline__ float WarpMax(float value) {
  for (int mask = 16; mask > 0; mask /= 2) {
    value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, mask));
  }
  return value;
}

}  // namespace sru::kernels::cuda

#endif  // SRU_KERNELS_CUDA_KERNELS_DEVICE_MATH_CUH_
