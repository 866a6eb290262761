#include "kernels/cpu/int8/int8_product.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/base/scan.h"
#include "kernels/cpu/isa/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/int8/int8_product.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
#include "kernels/cpu/int8/byte_kernel-inl.h"
#include "kernels/cpu/int8/int8_kernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
// Without vectors, as what is compiled for every processor.
struct PairDot {
  static constexpr int kDepth = 2;
  static constexpr int kMaxRows = 1;
  static constexpr int Vectors(int /*rows*/) { return 1; }

  using Sums = uint32_t;  // since they may wrap around
  static Sums Zero() { return 0; }
  static const uint8_t* Load(const uint8_t* weights) { return weights; }
  static void Add(const uint8_t* weights, const int16_t* x, Sums* sums) {
    *sums += static_cast<uint32_t>(weights[0] * x[0] + weights[1] * x[1]);
  }
  static Int8IntVector Total(Sums sums) { return hn::Set(Int8Int(), static_cast<int32_t>(sums)); }
  static void Store(Int8IntVector q, int16_t* x) { *x = static_cast<int16_t>(hn::GetLane(q)); }

  using X = int16_t;
  using T = int16_t;
  static void StoreX(Int8IntVector r, int16_t* x) { Store(r, x); }
  static void StoreT(Int8IntVector r, int16_t* x) { Store(r, x); }
  using Row = int32_t;
  static constexpr size_t RowStep() { return 1; }
  static Row ZeroRow() { return 0; }
  static void AddRow(const int8_t* weights, const int16_t* x, Row* row) { *row += *weights * *x; }
  static void SumsOf4(const Row* rows, int32_t* sums) {
    for (int i = 0; i < 4; ++i) sums[i] = rows[i];
  }
};

#else
// The products of adjacent pairs of 16-bit numbers, added.
#if HWY_TARGET == HWY_EMU128  // what clang compiles for every processor
HWY_INLINE hn::Vec128<int32_t> MultiplyPairs(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  hn::Vec128<int32_t> sums;
  for (int i = 0; i < 4; ++i) {
    sums.raw[i] = a.raw[2 * i] * b.raw[2 * i] + a.raw[2 * i + 1] * b.raw[2 * i + 1];
  }
  return sums;
}
#elif HWY_ARCH_X86
HWY_INLINE hn::Vec128<int32_t> MultiplyPairs(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<int32_t>{_mm_madd_epi16(a.raw, b.raw)};
}
#if HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec256<int32_t> MultiplyPairs(hn::Vec256<int16_t> a, hn::Vec256<int16_t> b) {
  return hn::Vec256<int32_t>{_mm256_madd_epi16(a.raw, b.raw)};
}
#endif
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec512<int32_t> MultiplyPairs(hn::Vec512<int16_t> a, hn::Vec512<int16_t> b) {
  return hn::Vec512<int32_t>{_mm512_madd_epi16(a.raw, b.raw)};
}
#endif
#else
HWY_INLINE hn::Vec128<int32_t> MultiplyPairs(hn::Vec128<int16_t> a, hn::Vec128<int16_t> b) {
  return hn::Vec128<int32_t>{vpaddq_s32(vmull_s16(vget_low_s16(a.raw), vget_low_s16(b.raw)),
                                        vmull_high_s16(a.raw, b.raw))};
}
#endif

struct PairDot {
  using Pairs = hn::Repartition<int16_t, Int8Int>;
  using Bytes = hn::Rebind<uint8_t, Pairs>;

  static constexpr int kDepth = 2;
  // Sums, a vector of weights and one of x in 32 registers, or 16.
  static constexpr int kMaxRows = HWY_TARGET <= HWY_AVX3 ? 4 : 2;
  static constexpr int Vectors(int rows) { return HWY_TARGET > HWY_AVX3 && rows == 1 ? 8 : 4; }

  using Sums = Int8IntVector;
  static HWY_INLINE Sums Zero() { return hn::Zero(Int8Int()); }

  static HWY_INLINE hn::Vec<Pairs> Load(const uint8_t* weights) {
    return hn::PromoteTo(Pairs(), hn::LoadU(Bytes(), weights));
  }

  static HWY_INLINE void Add(hn::Vec<Pairs> weights, const int16_t* x, Sums* sums) {
    int32_t pair;
    __builtin_memcpy(&pair, x, sizeof(pair));
    const auto both = hn::BitCast(Pairs(), hn::Set(Int8Int(), pair));
    *sums = hn::Add(*sums, MultiplyPairs(weights, both));
  }

  static HWY_INLINE Int8IntVector Total(const Sums& sums) { return sums; }

  static HWY_INLINE void Store(Int8IntVector q, int16_t* x) {
    const hn::Rebind<int16_t, Int8Int> d16;
    hn::StoreU(hn::DemoteTo(d16, q), d16, x);
  }

  using X = int16_t;
  using T = int16_t;
  static HWY_INLINE void StoreX(Int8IntVector r, int16_t* x) { Store(r, x); }
  static HWY_INLINE void StoreT(Int8IntVector r, int16_t* x) { Store(r, x); }
  using Row = Int8IntVector;
  static HWY_INLINE size_t RowStep() { return hn::Lanes(Pairs()); }
  static HWY_INLINE Row ZeroRow() { return hn::Zero(Int8Int()); }
  static HWY_INLINE void AddRow(const int8_t* weights, const int16_t* x, Row* row) {
    const hn::Rebind<int8_t, Pairs> d8;
    const auto w = hn::PromoteTo(Pairs(), hn::LoadU(d8, weights));
    *row = hn::Add(*row, MultiplyPairs(w, hn::LoadU(Pairs(), x)));
  }
  static HWY_INLINE void SumsOf4(const Row* rows, int32_t* sums) {
    for (int i = 0; i < 4; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(Int8Int(), rows[i]));
  }
};
#endif

void MultiplyTarget(const Int8Call& call) { MultiplyInt8<PairDot>(call); }
ByteRow RoundBytesTarget(const float* x, int k, int padded, float a, bool for_table,
                         void* rounded) {
  return RoundBytes<PairDot>(x, k, padded, a, for_table, rounded);
}
void MultiplyBytesTarget(const ByteCall& call) { MultiplyBytes<PairDot>(call); }
void MultiplyByteTableTarget(const ByteTableCall& call) { MultiplyByteTable<PairDot>(call); }

// A row of the matrix in units of its columns' scales, as it is stored.
void RoundTarget(const float* weights, const float* scales, size_t n, uint8_t* rounded) {
  const Int8Float d;
  const hn::Rebind<int16_t, Int8Float> d16;
  const hn::Rebind<uint8_t, Int8Float> d8;
  for (size_t j = 0; j < n; j += hn::Lanes(d)) {
    const auto scale = hn::LoadU(d, scales + j);
    // Columns of zeros have the scale 0.
    const auto divisor = hn::IfThenElse(hn::Eq(scale, hn::Zero(d)), hn::Set(d, 1.0f), scale);
    const auto q = hn::NearestInt(hn::Div(hn::LoadU(d, weights + j), divisor));
    const auto stored = hn::Add(hn::DemoteTo(d16, q), hn::Set(d16, kInt8Zero));
    hn::StoreU(hn::DemoteTo(d8, stored), d8, rounded + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace sru::kernels::cpu {
namespace {

HWY_EXPORT(MultiplyTarget);
HWY_EXPORT(RoundTarget);
HWY_EXPORT(RoundBytesTarget);
HWY_EXPORT(MultiplyBytesTarget);
HWY_EXPORT(MultiplyByteTableTarget);

// The scale of each column.
void ScaleColumns(const float* weights, int k, int n, float* scales) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < k; ++i) {
    for (int j = 0; j < n; ++j) {
      const float magnitude = std::abs(weights[static_cast<size_t>(i) * n + j]);
      // A value that is not finite stays: nothing is larger than NaN.
      if (!(magnitude <= std::numeric_limits<float>::max())) scales[j] = kNaN;
      if (magnitude > scales[j]) scales[j] = magnitude;
    }
  }
  for (int j = 0; j < n; ++j) scales[j] = scales[j] < kInt8Tiny ? 0 : scales[j] / 127;
}

void Multiply(const Int8Call& call) { HWY_DYNAMIC_DISPATCH(MultiplyTarget)(call); }
ByteRow RoundBytes(const float* x, int k, int padded, float a, bool for_table, void* rounded) {
  return HWY_DYNAMIC_DISPATCH(RoundBytesTarget)(x, k, padded, a, for_table, rounded);
}
void MultiplyBytes(const ByteCall& call) { HWY_DYNAMIC_DISPATCH(MultiplyBytesTarget)(call); }
void MultiplyTable(const ByteTableCall& call) {
  HWY_DYNAMIC_DISPATCH(MultiplyByteTableTarget)(call);
}

}  // namespace

const Int8Kernel& PairInt8Kernel() {
  static constexpr Int8Kernel kKernel = {
      VectorTargetName, 2, Multiply, sizeof(int16_t), RoundBytes, MultiplyBytes, MultiplyTable};
  return kKernel;
}

const Int8Kernel& BestInt8Kernel() {
  // VPDPBUSD, if the processor has it and it may be used.
  const bool vnni = (hwy::SupportedTargets() & HWY_AVX3) != 0 && HasAvx512Vnni();
  return vnni ? VnniInt8Kernel() : PairInt8Kernel();
}

Int8Matrix::Int8Matrix(const float* weights, int k, int n, const Int8Kernel& kernel)
    : kernel_(&kernel), k_(k), n_(n), scales_(n) {
  const int padded = (k + kInt8RowAlignment - 1) / kInt8RowAlignment * kInt8RowAlignment;
  weights_ = AlignedArray<uint8_t>(static_cast<size_t>(padded) * n);
  std::fill_n(weights_.data(), weights_.size(), static_cast<uint8_t>(kInt8Zero));
  ScaleColumns(weights, k, n, scales_.data());
  AlignedArray<uint8_t> rounded(n);
  const int depth = kernel.depth;
  for (int i = 0; i < k; ++i) {
    HWY_DYNAMIC_DISPATCH(RoundTarget)
    (weights + static_cast<size_t>(i) * n, scales_.data(), n, rounded.data());
    const int chunk = i / kInt8Chunk * kInt8Chunk;
    const int row = i - chunk;
    const int chunk_rows = std::min(kInt8Chunk, padded - chunk);
    uint8_t* block = weights_.data() + static_cast<size_t>(chunk) * n;
    for (int first = 0; first < n; first += kInt8Columns) {
      const int columns = std::min(kInt8Columns, n - first);
      uint8_t* const to = block + static_cast<size_t>(row / depth) * depth * columns + row % depth;
      for (int j = 0; j < columns; ++j) to[j * depth] = rounded.data()[first + j];
      block += static_cast<size_t>(chunk_rows) * columns;
    }
  }
}

void Int8Matrix::Multiply(const float* x, int rows, float* y) const {
  Int8Call call;
  call.k = k_;
  call.n = n_;
  call.weights = weights_.data();
  call.scales = scales_.data();
  call.x = x;
  call.rows = rows;
  call.y = y;
  kernel_->multiply(call);
}

}  // namespace sru::kernels::cpu
#endif  // HWY_ONCE
