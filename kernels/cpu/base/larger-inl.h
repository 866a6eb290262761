// Operations on vectors that give the same bits on every processor and let a NaN through, for the
// instruction set that the including file is compiled for. Included once per target, as Highway's
// -inl headers are.
#include "hwy/highway.h"

#if defined(SRU_KERNELS_CPU_BASE_LARGER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SRU_KERNELS_CPU_BASE_LARGER_INL_H_
#undef SRU_KERNELS_CPU_BASE_LARGER_INL_H_
#else
#define SRU_KERNELS_CPU_BASE_LARGER_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

// a where it is larger, otherwise b: a NaN comes through if it is in b. So do the instructions of
// x86; those of arm64, and what Highway does without instructions for vectors, drop any NaN.
#define SRU_KEEPS_NAN (HWY_ARCH_X86 && HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
template <class V>
HWY_INLINE V Larger(V a, V b) {
#if SRU_KEEPS_NAN
  return hwy::HWY_NAMESPACE::Max(a, b);
#else
  return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::Gt(a, b), a, b);
#endif
}

// a where it is smaller, otherwise b.
template <class V>
HWY_INLINE V Smaller(V a, V b) {
#if SRU_KEEPS_NAN
  return hwy::HWY_NAMESPACE::Min(a, b);
#else
  return hwy::HWY_NAMESPACE::IfThenElse(hwy::HWY_NAMESPACE::Lt(a, b), a, b);
#endif
}
#undef SRU_KEEPS_NAN

// p 2^n for whole numbers n in [-126, 127], exact where the result is a normal number. It is a
// product: where n is NaN too, the sum of p's bits and n's in the exponent can be a number.
template <class D, class V>
HWY_INLINE V TimesPowerOf2(D d, V p, V n) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::RebindToSigned<D> di;
  const auto exponent = hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127));
  return hn::Mul(p, hn::BitCast(d, hn::ShiftLeft<23>(exponent)));
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
