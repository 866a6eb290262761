// Vector functions for rows of any width, for the instruction set that the including file is
// compiled for. Included once per target, as Highway's -inl headers are.
#include <cstddef>

#include "hwy/highway.h"
#include "kernels/cpu/base/larger-inl.h"

#if defined(SRU_KERNELS_CPU_PROGRAMS_ROW_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SRU_KERNELS_CPU_PROGRAMS_ROW_MATH_INL_H_
#undef SRU_KERNELS_CPU_PROGRAMS_ROW_MATH_INL_H_
#else
#define SRU_KERNELS_CPU_PROGRAMS_ROW_MATH_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using FullVector = hn::CappedTag<float, 16>;

// Calls body(d, j) for each j at which a vector of the tag d begins, so that the vectors cover n
// values: whole vectors first, then vectors of 4 values, then single ones. Nothing past the n
// values is touched. Which value is in which vector depends on n alone.
template <class Body>
HWY_INLINE void ForEachVector(size_t n, const Body& body) {
  const FullVector full;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 1> one;
  size_t j = 0;
  for (; j + hn::Lanes(full) <= n; j += hn::Lanes(full)) body(full, j);
  for (; j + hn::Lanes(four) <= n; j += hn::Lanes(four)) body(four, j);
  for (; j < n; ++j) body(one, j);
}

// e^x for x of at most 0; relative error below 1e-7 down to e^-87, and less than 2e-38 below. NaN
// stays NaN: constants come first in Larger(), so that it comes through.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V Exp(D d, V x) {
  // Whole vectors of AVX-512 have an instruction that scales, below the normal numbers too.
  constexpr bool kScales = HWY_TARGET <= HWY_AVX3 && sizeof(V) == 64;
  x = Larger(hn::Set(d, kScales ? -110.0f : -87.0f), x);
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504f)));
  // ln 2 in two parts, of which the first has few bits, so that its multiples are exact.
  V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  V p = hn::Set(d, 1.0f / 5040.0f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
#if HWY_TARGET <= HWY_AVX3
  // With a full mask: the plain intrinsic draws a false warning from GCC 12.
  if constexpr (kScales) return V{_mm512_maskz_scalef_ps(0xffff, p.raw, n.raw)};
#endif
  return TimesPowerOf2(d, p, n);
}

// The scalar of a sum of lanes or of their maximum.
template <class D, class V>
HWY_INLINE float SumOf(D d, V v) {
  return hn::GetLane(hn::SumOfLanes(d, v));
}
template <class D, class V>
HWY_INLINE float MaxOf(D d, V v) {
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

#if HWY_TARGET != HWY_SCALAR
// Adds the blocks of 4 lanes to each other.
template <class D, class V>
HWY_INLINE auto SumOfBlocks(D d, V v) {
  if constexpr (hn::MaxLanes(d) > 4) {
    const hn::Half<D> half;
    return SumOfBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else {
    return v;
  }
}

// The sums of the lanes of four vectors.
template <class D, class V>
HWY_INLINE auto SumsOfFour(D d, V a, V b, V c, V e) {
  const hn::Repartition<double, D> pairs;
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto first = hn::BitCast(pairs, ab);
  const auto second = hn::BitCast(pairs, ce);
  const V sums = hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, first, second)),
                         hn::BitCast(d, hn::InterleaveUpper(pairs, first, second)));
  return SumOfBlocks(d, sums);
}
#endif

// Replaces each of `n` values z, n a whole number of vectors, by e^(z - max) and returns their sum.
HWY_INLINE float ExpAndSum(float* values, size_t n, float max) {
  const FullVector d;
  const auto shift = hn::Set(d, max);
  auto sum = hn::Zero(d);
  for (size_t j = 0; j < n; j += hn::Lanes(d)) {
    const auto e = Exp(d, hn::Sub(hn::LoadU(d, values + j), shift));
    hn::StoreU(e, d, values + j);
    sum = hn::Add(sum, e);
  }
  return SumOf(d, sum);
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
