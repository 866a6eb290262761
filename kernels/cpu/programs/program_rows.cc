#include "kernels/cpu/programs/program_rows.h"

#include "kernels/cpu/base/layer_norm.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/programs/program_rows.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/programs/row_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

void AddTarget(const float* a, const float* b, size_t n, float* y) {
  ForEachVector(n, [&](auto d, size_t j) HWY_ATTR {
    hn::StoreU(hn::Add(hn::LoadU(d, a + j), hn::LoadU(d, b + j)), d, y + j);
  });
}

template <bool kRectifies>
HWY_INLINE void AddBiasToRows(const float* z, size_t z_stride, const float* HWY_RESTRICT bias,
                              int rows, size_t n, float* HWY_RESTRICT y, size_t y_stride) {
  for (int row = 0; row < rows; ++row, z += z_stride, y += y_stride) {
    ForEachVector(n, [&](auto d, size_t j) HWY_ATTR {
      const auto sum = hn::Add(hn::LoadU(d, z + j), hn::LoadU(d, bias + j));
      hn::StoreU(kRectifies ? Larger(hn::Zero(d), sum) : sum, d, y + j);
    });
  }
}

void AddBiasTarget(const float* z, size_t z_stride, const float* bias, int rows, size_t n,
                   bool rectifies, float* y, size_t y_stride) {
  if (rectifies) {
    AddBiasToRows<true>(z, z_stride, bias, rows, n, y, y_stride);
  } else {
    AddBiasToRows<false>(z, z_stride, bias, rows, n, y, y_stride);
  }
}

void ScaleTarget(float scale, const float* x, size_t n, float* y) {
  ForEachVector(n, [&](auto d, size_t j) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::Set(d, scale), hn::LoadU(d, x + j)), d, y + j);
  });
}

void ScaleAndAddTarget(float scale, const float* x, const float* a, size_t n, float* y) {
  ForEachVector(n, [&](auto d, size_t j) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::Set(d, scale), hn::LoadU(d, x + j), hn::LoadU(d, a + j)), d, y + j);
  });
}

void Int8ToFloatTarget(const int8_t* q, float unit, size_t n, float* y) {
  ForEachVector(n, [&](auto d, size_t j) HWY_ATTR {
    const hn::Rebind<int32_t, decltype(d)> d32;
    const hn::Rebind<int8_t, decltype(d)> d8;
    const auto whole = hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, q + j)));
    hn::StoreU(hn::Mul(whole, hn::Set(d, unit)), d, y + j);
  });
}

void SsruTarget(const float* x, const float* forget, const float* before, size_t n, float* c,
                float* y) {
  ForEachVector(n, [&](auto d, size_t j) HWY_ATTR {
    const auto one = hn::Set(d, 1.0f);
    const auto z = hn::LoadU(d, forget + j);
    // Uses -|z|, since e^|z| may be infinite: sigmoid(z) = e^-|z| / (1 + e^-|z|) for z below 0.
    const auto e = Exp(d, hn::Neg(hn::Abs(z)));
    const auto f = hn::Div(hn::IfThenElse(hn::Lt(z, hn::Zero(d)), e, one), hn::Add(one, e));
    const auto state =
        hn::MulAdd(f, hn::LoadU(d, before + j), hn::Mul(hn::Sub(one, f), hn::LoadU(d, x + j)));
    hn::StoreU(state, d, c + j);
    hn::StoreU(Larger(hn::Zero(d), state), d, y + j);
  });
}

void MaxTarget(const float* x, size_t n, float* y) {
  ForEachVector(n, [&](auto d, size_t j) HWY_ATTR {
    hn::StoreU(Larger(hn::LoadU(d, y + j), hn::LoadU(d, x + j)), d, y + j);
  });
}

// Sum of f(j, vector) over n values; whole vectors are added first.
template <class Term>
HWY_INLINE float SumTerms(size_t n, const Term& term) {
  const FullVector full;
  const size_t whole = n / hn::Lanes(full) * hn::Lanes(full);
  auto lanes = hn::Zero(full);
  for (size_t j = 0; j < whole; j += hn::Lanes(full)) lanes = term(full, j, lanes);
  float rest = 0;
  ForEachVector(n - whole, [&](auto d, size_t j)
                               HWY_ATTR { rest += SumOf(d, term(d, whole + j, hn::Zero(d))); });
  return SumOf(full, lanes) + rest;
}

float DotTarget(const float* a, const float* b, size_t n) {
  return SumTerms(n, [&](auto d, size_t j, auto sum) HWY_ATTR {
    return hn::MulAdd(hn::LoadU(d, a + j), hn::LoadU(d, b + j), sum);
  });
}

void DotFourTarget(const float* const* rows, const float* x, size_t n, float* sums) {
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < 4; ++i) sums[i] = DotTarget(rows[i], x, n);
#else
  const FullVector full;
  const hn::CappedTag<float, 4> four;
  const size_t whole = n / hn::Lanes(full) * hn::Lanes(full);
  auto a = hn::Zero(full);
  auto b = a;
  auto c = a;
  auto e = a;
  for (size_t j = 0; j < whole; j += hn::Lanes(full)) {
    const auto xs = hn::LoadU(full, x + j);
    a = hn::MulAdd(hn::LoadU(full, rows[0] + j), xs, a);
    b = hn::MulAdd(hn::LoadU(full, rows[1] + j), xs, b);
    c = hn::MulAdd(hn::LoadU(full, rows[2] + j), xs, c);
    e = hn::MulAdd(hn::LoadU(full, rows[3] + j), xs, e);
  }
  hn::StoreU(SumsOfFour(full, a, b, c, e), four, sums);
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = whole; j < n; ++j) sums[i] += rows[i][j] * x[j];
  }
#endif
}

void NormalizeTarget(const float* x, const float* weight, const float* bias, size_t n,
                     float epsilon, float* y) {
  const float size = static_cast<float>(n);
  const float mean = SumTerms(n, [&](auto d, size_t j, auto sum)
                                     HWY_ATTR { return hn::Add(hn::LoadU(d, x + j), sum); }) /
                     size;
  const float variance = SumTerms(n,
                                  [&](auto d, size_t j, auto sum) HWY_ATTR {
                                    const auto difference =
                                        hn::Sub(hn::LoadU(d, x + j), hn::Set(d, mean));
                                    return hn::MulAdd(difference, difference, sum);
                                  }) /
                         size;
  if (!(variance <= kLargestVariance)) {
    return NormalizeHugeRow({1, static_cast<int>(n)}, weight, bias, epsilon, x, y);
  }
  const float scale = 1.0f / __builtin_sqrtf(variance + epsilon);
  ForEachVector(n, [&](auto d, size_t j) HWY_ATTR {
    const auto normalized =
        hn::Mul(hn::Sub(hn::LoadU(d, x + j), hn::Set(d, mean)), hn::Set(d, scale));
    hn::StoreU(hn::MulAdd(normalized, hn::LoadU(d, weight + j), hn::LoadU(d, bias + j)), d, y + j);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {

HWY_EXPORT(AddTarget);
HWY_EXPORT(AddBiasTarget);
HWY_EXPORT(ScaleTarget);
HWY_EXPORT(ScaleAndAddTarget);
HWY_EXPORT(Int8ToFloatTarget);
HWY_EXPORT(SsruTarget);
HWY_EXPORT(MaxTarget);
HWY_EXPORT(DotTarget);
HWY_EXPORT(DotFourTarget);
HWY_EXPORT(NormalizeTarget);

void AddRows(const float* a, const float* b, size_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(AddTarget)(a, b, n, y);
}

void AddBias(const float* z, size_t z_stride, const float* bias, int rows, size_t n, bool rectifies,
             float* y, size_t y_stride) {
  HWY_DYNAMIC_DISPATCH(AddBiasTarget)(z, z_stride, bias, rows, n, rectifies, y, y_stride);
}

void ScaleRow(float scale, const float* x, size_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(ScaleTarget)(scale, x, n, y);
}

void ScaleAndAddRow(float scale, const float* x, const float* a, size_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(ScaleAndAddTarget)(scale, x, a, n, y);
}

void Int8ToFloatRow(const int8_t* q, float unit, size_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(Int8ToFloatTarget)(q, unit, n, y);
}

void SsruRow(const float* x, const float* forget, const float* before, size_t n, float* c,
             float* y) {
  HWY_DYNAMIC_DISPATCH(SsruTarget)(x, forget, before, n, c, y);
}

void MaxRow(const float* x, size_t n, float* y) { HWY_DYNAMIC_DISPATCH(MaxTarget)(x, n, y); }

void DotFourRows(const float* const* rows, const float* x, size_t n, float* sums) {
  HWY_DYNAMIC_DISPATCH(DotFourTarget)(rows, x, n, sums);
}

float DotRows(const float* a, const float* b, size_t n) {
  return HWY_DYNAMIC_DISPATCH(DotTarget)(a, b, n);
}

void NormalizeValues(const float* x, const float* weight, const float* bias, size_t n,
                     float epsilon, float* y) {
  HWY_DYNAMIC_DISPATCH(NormalizeTarget)(x, weight, bias, n, epsilon, y);
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
