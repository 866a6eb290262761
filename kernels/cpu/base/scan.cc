#include "kernels/cpu/base/scan.h"

#include "hwy/cache_control.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/base/scan.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/base/scan_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

// Scans kVectors adjacent vectors of dimensions, from dimension `j` on, in one pass over the steps:
// their chains of dependent operations are independent of each other and overlap.
template <Highway kHighway, Activation kActivation, int kVectors>
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

  // Copies: vector stores may alias anything, so that members would be read again at each step.
  const PoolingStep pooling = s.pooling;
  const Rounding rounding = s.h_rounding;
  bool first = s.starts;
  const float* HWY_RESTRICT u = s.u + j;
  const float* HWY_RESTRICT x = kHighway == Highway::kInput ? s.x + j : nullptr;
  float* HWY_RESTRICT h_row = s.h != nullptr ? s.h + j : nullptr;
  for (int step = 0; step < s.steps; ++step) {
    V h[kVectors];
    for (int i = 0; i < kVectors; ++i) {
      const float* at = u + i * lanes;
      V highway = hn::Zero(d);
      if constexpr (kHighway == Highway::kInput) {
        highway = hn::Mul(alpha, hn::Load(d, x + i * lanes));
      } else if constexpr (kHighway == Highway::kMatrix) {
        highway = hn::Load(d, at + 3 * p.padded);
      }
      h[i] = ScanStep<kHighway, kActivation>(d, v_f[i], v_r[i], b_f[i], b_r[i], hn::Load(d, at),
                                             hn::Load(d, at + p.padded),
                                             hn::Load(d, at + 2 * p.padded), highway, c[i]);
      if (h_row != nullptr) {
        hn::StoreU(Rounded(d, rounding, h[i]), d, h_row + i * lanes);
      }
    }
    PoolStep<kVectors>(pooling, first, h, pool);
    first = false;
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

// The same of single steps, the constants being loaded once for all rows.
template <Highway kHighway, Activation kActivation, int kVectors>
HWY_INLINE void ScanVectors(const ScanParameters& p, const SingleSteps& s, size_t j) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const V alpha = hn::Set(d, p.alpha);
  V v_f[kVectors], v_r[kVectors], b_f[kVectors], b_r[kVectors];
  for (int i = 0; i < kVectors; ++i) {
    const size_t at = j + i * lanes;
    v_f[i] = hn::Load(d, p.v_f + at);
    v_r[i] = hn::Load(d, p.v_r + at);
    b_f[i] = hn::Load(d, p.b_f + at);
    b_r[i] = hn::Load(d, p.b_r + at);
  }
  const Rounding rounding = s.h_rounding;
  const float* const* const befores = s.before;
  float* const* const afters = s.after;
  float* const* const h_rows = s.h_rows;
  const float* HWY_RESTRICT u = s.u + j;
  const float* HWY_RESTRICT x = kHighway == Highway::kInput ? s.x + j : nullptr;
  float* h_row = s.h;
  for (int row = 0; row < s.rows; ++row) {
    const float* const before = befores != nullptr ? befores[row] : nullptr;
    float* const after = afters != nullptr ? afters[row] : nullptr;
    float* const h_at = h_rows == nullptr        ? h_row + j
                        : h_rows[row] == nullptr ? nullptr
                                                 : h_rows[row] + s.h_column + j;
    // States are anywhere in memory, so that nothing else fetches them ahead.
    constexpr int kAhead = 4;
    if (row + kAhead < s.rows) {
      const size_t column = s.c_column + j;
      for (int i = 0; i < kVectors; ++i) {
        if (befores != nullptr && befores[row + kAhead] != nullptr) {
          hwy::Prefetch(befores[row + kAhead] + column + i * lanes);
        }
        if (afters != nullptr && afters[row + kAhead] != nullptr) {
          hwy::Prefetch(afters[row + kAhead] + column + i * lanes);
        }
      }
    }
    for (int i = 0; i < kVectors; ++i) {
      const float* at = u + i * lanes;
      V highway = hn::Zero(d);
      if constexpr (kHighway == Highway::kInput) {
        highway = hn::Mul(alpha, hn::Load(d, x + i * lanes));
      } else if constexpr (kHighway == Highway::kMatrix) {
        highway = hn::Load(d, at + 3 * p.padded);
      }
      V c = hn::Zero(d);
      if (before != nullptr) c = hn::LoadU(d, before + s.c_column + j + i * lanes);
      const V h = ScanStep<kHighway, kActivation>(d, v_f[i], v_r[i], b_f[i], b_r[i],
                                                  hn::Load(d, at), hn::Load(d, at + p.padded),
                                                  hn::Load(d, at + 2 * p.padded), highway, c);
      if (after != nullptr) hn::StoreU(c, d, after + s.c_column + j + i * lanes);
      if (h_at != nullptr) {
        hn::StoreU(Rounded(d, rounding, h), d, h_at + i * lanes);
      }
    }
    u += s.u_stride;
    if constexpr (kHighway == Highway::kInput) x += s.x_stride;
    if (h_rows == nullptr) h_row += s.h_stride;
  }
}

// All dimensions of either kind of steps.
template <Highway kHighway, Activation kActivation, class Steps>
HWY_NOINLINE void ScanRows(const ScanParameters& p, const Steps& s) {
  const size_t lanes = hn::Lanes(D());
  // Registers: six vectors per group and the polynomial's constants.
  constexpr int kWide = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
  const size_t padded = static_cast<size_t>(p.padded);
  size_t j = 0;
  for (; j + kWide * lanes <= padded; j += kWide * lanes) {
    ScanVectors<kHighway, kActivation, kWide>(p, s, j);
  }
  if constexpr (kWide > 2) {
    for (; j + 2 * lanes <= padded; j += 2 * lanes) ScanVectors<kHighway, kActivation, 2>(p, s, j);
  }
  for (; j < padded; j += lanes) ScanVectors<kHighway, kActivation, 1>(p, s, j);
}

template <class Steps>
HWY_INLINE void ScanVariants(const ScanParameters& p, const Steps& s) {
  DispatchScan(p, [&](auto variant) HWY_ATTR {
    ScanRows<decltype(variant)::kHighway, decltype(variant)::kActivation>(p, s);
  });
}

void ScanTarget(const ScanParameters& p, const ScanSteps& s) { ScanVariants(p, s); }

void SingleStepsTarget(const ScanParameters& p, const SingleSteps& s) { ScanVariants(p, s); }

const char* TargetName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {

HWY_EXPORT(ScanTarget);
HWY_EXPORT(SingleStepsTarget);
HWY_EXPORT(TargetName);

void Scan(const ScanParameters& parameters, const ScanSteps& steps) {
  HWY_DYNAMIC_DISPATCH(ScanTarget)(parameters, steps);
}

void ScanSingleSteps(const ScanParameters& parameters, const SingleSteps& steps) {
  HWY_DYNAMIC_DISPATCH(SingleStepsTarget)(parameters, steps);
}

const char* VectorTargetName() { return HWY_DYNAMIC_DISPATCH(TargetName)(); }

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
