#include "kernels/cpu/base/bfloat16.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/base/bfloat16_rows.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/base/scan_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

void ToBFloat16Target(const float* from, size_t size, BFloat16* to) {
  const D d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    StoreBFloat16(d, hn::LoadU(d, from + i), to + i);
  }
  for (; i < size; ++i) to[i] = ToBFloat16(from[i]);
}

void ToFloatTarget(const BFloat16* from, size_t size, float* to) {
  const D d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    hn::StoreU(LoadBFloat16(d, from + i), d, to + i);
  }
  for (; i < size; ++i) to[i] = ToFloat(from[i]);
}

void RoundTarget(float* values, size_t size) {
  const D d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= size; i += hn::Lanes(d)) {
    hn::StoreU(RoundToBFloat16(d, hn::LoadU(d, values + i)), d, values + i);
  }
  for (; i < size; ++i) values[i] = RoundedToBFloat16(values[i]);
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {

HWY_EXPORT(ToBFloat16Target);
HWY_EXPORT(ToFloatTarget);
HWY_EXPORT(RoundTarget);

void ToBFloat16Row(const float* from, size_t size, BFloat16* to) {
  HWY_DYNAMIC_DISPATCH(ToBFloat16Target)(from, size, to);
}

void ToFloatRow(const BFloat16* from, size_t size, float* to) {
  HWY_DYNAMIC_DISPATCH(ToFloatTarget)(from, size, to);
}

void RoundRow(Rounding rounding, float* values, size_t size) {
  if (rounding == Rounding::kNone) return;
  HWY_DYNAMIC_DISPATCH(RoundTarget)(values, size);
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
