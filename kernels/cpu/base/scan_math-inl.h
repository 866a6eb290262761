// One step of the recurrence (scan.h) on one vector of dimensions, for the instruction set that the
// including file is compiled for. Included once per target, as Highway's -inl headers are.
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/larger-inl.h"
#include "kernels/cpu/base/scan.h"

#if defined(SRU_KERNELS_CPU_BASE_SCAN_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SRU_KERNELS_CPU_BASE_SCAN_MATH_INL_H_
#undef SRU_KERNELS_CPU_BASE_SCAN_MATH_INL_H_
#else
#define SRU_KERNELS_CPU_BASE_SCAN_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// 2^x; relative error below 2e-7. Minimax polynomial on [-1/2, 1/2], the integer part goes into the
// exponent. Far from 0 the result is 0 or infinity with AVX-512; before, x is clamped to [-126,
// 126]. Constants come first in Larger() and Smaller(), so that a NaN comes through.
HWY_INLINE V Exp2(D d, V x) {
#if HWY_TARGET > HWY_AVX3
  x = Smaller(hn::Set(d, 126.0f), Larger(hn::Set(d, -126.0f), x));
#endif
  const V n = hn::Round(x);
  const V r = hn::Sub(x, n);
  V p = hn::Set(d, 0.00132647273f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00967151299f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555073358f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240222424f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147004f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
#if HWY_TARGET <= HWY_AVX3
  // With a full mask: the plain intrinsic draws a false warning from GCC 12.
  return V{_mm512_maskz_scalef_ps(0xffff, p.raw, n.raw)};
#else
  return TimesPowerOf2(d, p, n);
#endif
}

// 1 / x for x of at least 1: with AVX-512 the hardware's estimate of 14 bits and one Newton step, 0
// for infinity. Earlier estimates have 11 bits; two steps from there are no faster than the
// division and less exact.
HWY_INLINE V Reciprocal(D d, V x) {
#if HWY_TARGET <= HWY_AVX3
  const V y = hn::ApproximateReciprocal(x);
  const V finite = Smaller(hn::Set(d, 0x1p126f), x);  // 0 * infinity would be NaN
  return hn::Mul(y, hn::NegMulAdd(finite, y, hn::Set(d, 2.0f)));
#else
  return hn::Div(hn::Set(d, 1.0f), x);
#endif
}

// The gate of an argument that carries kExp2GateScale: exactly 0 or 1 at infinity.
HWY_INLINE V Gate(D d, V z) {
  const V gate = Reciprocal(d, hn::Add(hn::Set(d, 1.0f), Exp2(d, z)));
#if HWY_TARGET <= HWY_AVX3
  return gate;
#else
  return hn::IfThenZeroElse(hn::Gt(z, hn::Set(d, 126.0f)), gate);
#endif
}

// tanh(x) = (1 - e) / (1 + e) with e = exp(-2x): exactly 0 at 0, so that padding stays zero.
HWY_INLINE V Tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = Exp2(d, Smaller(hn::Set(d, 126.0f), hn::Mul(x, hn::Set(d, 2.0f * kExp2GateScale))));
  return hn::Mul(hn::Sub(one, e), Reciprocal(d, hn::Add(one, e)));
}

// weight * a + (1 - weight) * b. The shorter weight * (a - b) + b makes NaN of an infinite b.
HWY_INLINE V Mix(D d, V weight, V a, V b) {
  return hn::MulAdd(weight, a, hn::Mul(hn::Sub(hn::Set(d, 1.0f), weight), b));
}

template <Activation kActivation>
HWY_INLINE V Activate(D d, V c) {
  if constexpr (kActivation == Activation::kTanh) {
    return Tanh(d, c);
  } else {
    static_assert(kActivation == Activation::kIdentity, "an activation that has no function here");
    (void)d;
    return c;
  }
}

// Takes the state `c` one step on and returns h. `highway` is not read with Highway::kNone.
template <Highway kHighway, Activation kActivation>
HWY_INLINE V ScanStep(D d, V v_f, V v_r, V b_f, V b_r, V u0, V u1, V u2, V highway, V& c) {
  const V f = Gate(d, hn::MulAdd(v_f, c, hn::Add(u1, b_f)));
  const V r = Gate(d, hn::MulAdd(v_r, c, hn::Add(u2, b_r)));
  c = Mix(d, f, c, u0);
  const V g = Activate<kActivation>(d, c);
  return kHighway == Highway::kNone ? hn::Mul(r, g) : Mix(d, r, g, highway);
}

// A variant of the recurrence that kernels are compiled for.
template <Highway kOfHighway, Activation kOfActivation>
struct ScanVariant {
  static constexpr Highway kHighway = kOfHighway;
  static constexpr Activation kActivation = kOfActivation;
};

// Calls body(ScanVariant()) for the variant that `p` names. Validate() has refused values that have
// no case here.
template <Activation kActivation, class Body>
HWY_INLINE void DispatchHighway(const ScanParameters& p, const Body& body) {
  switch (p.highway) {
    case Highway::kNone:
      return body(ScanVariant<Highway::kNone, kActivation>());
    case Highway::kInput:
      return body(ScanVariant<Highway::kInput, kActivation>());
    case Highway::kMatrix:
      return body(ScanVariant<Highway::kMatrix, kActivation>());
  }
}
template <class Body>
HWY_INLINE void DispatchScan(const ScanParameters& p, const Body& body) {
  switch (p.activation) {
    case Activation::kIdentity:
      return DispatchHighway<Activation::kIdentity>(p, body);
    case Activation::kTanh:
      return DispatchHighway<Activation::kTanh>(p, body);
  }
}

// Adds a step's h to the running pool (pool.h), for adjacent vectors of dimensions. `step` is
// PoolingInTime()'s; `first` says whether it is the first step of the sequence.
template <int kVectors>
HWY_INLINE void PoolStep(PoolingStep step, bool first, const V (&h)[kVectors],
                         V (&pool)[kVectors]) {
  switch (step) {
    case PoolingStep::kNothing:
      return;
    case PoolingStep::kFirst:
      if (!first) return;
      for (int i = 0; i < kVectors; ++i) pool[i] = h[i];
      return;
    case PoolingStep::kLast:
      for (int i = 0; i < kVectors; ++i) pool[i] = h[i];
      return;
    case PoolingStep::kLargest:
      for (int i = 0; i < kVectors; ++i) pool[i] = Larger(pool[i], h[i]);
      return;
    case PoolingStep::kSum:
      for (int i = 0; i < kVectors; ++i) pool[i] = hn::Add(pool[i], h[i]);
      return;
  }
}

// The bits of the nearest bfloat16 value in the upper half of each lane, zeros in the lower; ties
// to even, NaN stays NaN. As ToBFloat16() in bfloat16.h.
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> BFloat16Bits(D d, V value) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, value);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7fff)), odd);
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000));
  const auto chosen = hn::IfThenElse(hn::RebindMask(du, hn::IsNaN(value)), quiet, rounded);
  (void)d;
  return hn::And(chosen, hn::Set(du, 0xffff0000u));
}

HWY_INLINE V RoundToBFloat16(D d, V value) { return hn::BitCast(d, BFloat16Bits(d, value)); }

HWY_INLINE V Rounded(D d, Rounding rounding, V value) {
  return rounding == Rounding::kBFloat16 ? RoundToBFloat16(d, value) : value;
}

HWY_INLINE void StoreBFloat16(D d, V value, BFloat16* to) {
#if HWY_TARGET <= HWY_AVX3 && defined(__AVX512BF16__)
  // Denormals become zero.
  (void)d;
  const __m256bh rounded = _mm512_cvtneps_pbh(value.raw);
  __builtin_memcpy(to, &rounded, sizeof(rounded));
#else
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(BFloat16Bits(d, value))), d16, to);
#endif
}

HWY_INLINE V LoadBFloat16(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<uint16_t, D> d16;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
