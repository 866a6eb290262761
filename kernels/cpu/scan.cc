#include "kernels/cpu/scan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/scan.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;

// 2^x for x in [-126, 126], which the argument is clamped to; relative error below 2e-7. Minimax
// polynomial on [-1/2, 1/2], the integer part goes into the exponent.
HWY_INLINE V Exp2(D d, V x) {
  const hn::RebindToSigned<D> di;
  x = hn::Min(hn::Max(x, hn::Set(d, -126.0f)), hn::Set(d, 126.0f));
  const V n = hn::Round(x);
  const V r = hn::Sub(x, n);
  V p = hn::Set(d, 0.00132647273f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00967151299f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555073358f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240222424f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147004f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, n));
  return hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
}

// 1 / x for x in [1, 2^127): the hardware's estimate (at least 11 bits on x86) and one Newton step.
HWY_INLINE V Reciprocal(D d, V x) {
#if HWY_ARCH_X86
  const V y = hn::ApproximateReciprocal(x);
  return hn::Mul(y, hn::NegMulAdd(x, y, hn::Set(d, 2.0f)));
#else
  return hn::Div(hn::Set(d, 1.0f), x);
#endif
}

// The gate of an argument that carries kScanGateScale.
HWY_INLINE V Gate(D d, V z) { return Reciprocal(d, hn::Add(hn::Set(d, 1.0f), Exp2(d, z))); }

// tanh(x) = (1 - e) / (1 + e) with e = exp(-2x): exactly 0 at 0, so that padding stays zero.
HWY_INLINE V Tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = Exp2(d, hn::Mul(x, hn::Set(d, 2.0f * kScanGateScale)));
  return hn::Mul(hn::Sub(one, e), Reciprocal(d, hn::Add(one, e)));
}

// Scans kVectors adjacent vectors of dimensions, from dimension `j` on, in one pass over the steps:
// their chains of dependent operations are independent of each other and overlap.
template <Highway kHighway, bool kTanh, int kVectors>
HWY_INLINE void ScanVectors(const ScanParameters& p, const ScanSteps& s, size_t j) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V alpha = hn::Set(d, p.alpha);
  V v_f[kVectors], v_r[kVectors], b_f[kVectors], b_r[kVectors], c[kVectors], pool[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    const size_t at = j + i * lanes;
    v_f[i] = hn::Load(d, p.v_f + at);
    v_r[i] = hn::Load(d, p.v_r + at);
    b_f[i] = hn::Load(d, p.b_f + at);
    b_r[i] = hn::Load(d, p.b_r + at);
    c[i] = hn::Load(d, s.c + at);
    pool[i] = s.pool != nullptr ? hn::Load(d, s.pool + at) : hn::Zero(d);
  }

  const float* HWY_RESTRICT u = s.u + j;
  const float* HWY_RESTRICT x = kHighway == Highway::kInput ? s.x + j : nullptr;
  float* HWY_RESTRICT h_row = s.h != nullptr ? s.h + j : nullptr;
  for (int step = 0; step < s.steps; ++step) {
    for (int i = 0; i < kVectors; ++i) {
      const float* at = u + i * lanes;
      const V u0 = hn::Load(d, at);
      const V f = Gate(d, hn::MulAdd(v_f[i], c[i], hn::Add(hn::Load(d, at + p.padded), b_f[i])));
      const V r =
          Gate(d, hn::MulAdd(v_r[i], c[i], hn::Add(hn::Load(d, at + 2 * p.padded), b_r[i])));
      c[i] = hn::MulAdd(f, hn::Sub(c[i], u0), u0);
      const V g = kTanh ? Tanh(d, c[i]) : c[i];
      V h;
      if constexpr (kHighway == Highway::kNone) {
        h = hn::Mul(r, g);
      } else {
        const V skip = kHighway == Highway::kInput ? hn::Mul(alpha, hn::Load(d, x + i * lanes))
                                                   : hn::Load(d, at + 3 * p.padded);
        h = hn::MulAdd(r, hn::Sub(g, skip), skip);
      }
      if (h_row != nullptr) hn::StoreU(h, d, h_row + i * lanes);
      if (s.pooling == Pooling::kMax) {
        pool[i] = hn::Max(pool[i], h);
      } else if (s.pooling == Pooling::kMean) {
        pool[i] = hn::Add(pool[i], h);
      } else {
        pool[i] = h;
      }
    }
    u += s.u_stride;
    if constexpr (kHighway == Highway::kInput) x += s.x_stride;
    if (h_row != nullptr) h_row += s.h_stride;
  }

  for (int i = 0; i < kVectors; ++i) {
    const size_t at = j + i * lanes;
    hn::Store(c[i], d, s.c + at);
    if (s.pool != nullptr) hn::Store(pool[i], d, s.pool + at);
  }
}

template <Highway kHighway, bool kTanh>
HWY_NOINLINE void ScanRows(const ScanParameters& p, const ScanSteps& s) {
  const size_t lanes = hn::Lanes(D());
  // Registers: six vectors per group and the polynomial's constants.
  constexpr int kWide = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
  const size_t padded = static_cast<size_t>(p.padded);
  size_t j = 0;
  for (; j + kWide * lanes <= padded; j += kWide * lanes) {
    ScanVectors<kHighway, kTanh, kWide>(p, s, j);
  }
  if constexpr (kWide > 2) {
    for (; j + 2 * lanes <= padded; j += 2 * lanes) ScanVectors<kHighway, kTanh, 2>(p, s, j);
  }
  for (; j < padded; j += lanes) ScanVectors<kHighway, kTanh, 1>(p, s, j);
}

template <bool kTanh>
void ScanActivation(const ScanParameters& p, const ScanSteps& s) {
  switch (p.highway) {
    case Highway::kNone:
      return ScanRows<Highway::kNone, kTanh>(p, s);
    case Highway::kInput:
      return ScanRows<Highway::kInput, kTanh>(p, s);
    case Highway::kMatrix:
      return ScanRows<Highway::kMatrix, kTanh>(p, s);
  }
}

void ScanTarget(const ScanParameters& p, const ScanSteps& s) {
  if (p.activation == Activation::kTanh) return ScanActivation<true>(p, s);
  return ScanActivation<false>(p, s);
}

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels {

HWY_EXPORT(ScanTarget);
HWY_EXPORT(TargetName);

void Scan(const ScanParameters& parameters, const ScanSteps& steps) {
  HWY_DYNAMIC_DISPATCH(ScanTarget)(parameters, steps);
}

const char* VectorTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace sru::kernels
#endif  // HWY_ONCE
