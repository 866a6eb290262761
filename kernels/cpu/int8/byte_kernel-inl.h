// Products of bytes (byte_product.h) for the instruction set that the including file is compiled
// for. Included once per target, as Highway's -inl headers are. How products are added up is a
// policy, Dot, which has kDepth, kMaxRows, Vectors(), Sums, Zero(), Load(), Add() and Total() of
// int8_kernel-inl.h, and
//   X                           a value of x, as Add() takes it
//   T                           one of x for a table
//   StoreX(r, x), StoreT(r, x)  a vector of them
//   Row                         sums of a row of a table, with ZeroRow() and SumsOf4(rows, sums)
//   RowStep()                   values that AddRow(weights, x, &row) multiplies
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/base/larger-inl.h"
#include "kernels/cpu/int8/int8_kernel-inl.h"
#include "kernels/cpu/int8/int8_kernel.h"

#if defined(SRU_KERNELS_CPU_INT8_BYTE_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SRU_KERNELS_CPU_INT8_BYTE_KERNEL_INL_H_
#undef SRU_KERNELS_CPU_INT8_BYTE_KERNEL_INL_H_
#else
#define SRU_KERNELS_CPU_INT8_BYTE_KERNEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

template <class Dot>
HWY_INLINE ByteRow RoundBytes(const float* x, int k, int padded, float a, bool for_table,
                              void* rounded) {
  const Int8Float d;
  const Int8Int di;
  using X = typename Dot::X;
  using T = typename Dot::T;
  X* const for_product = static_cast<X*>(rounded);
  T* const of_table = static_cast<T*>(rounded);
  const Int8FloatVector factor = hn::Set(d, a);
  const Int8FloatVector most = hn::Set(d, 127.0f);
  const Int8FloatVector least = hn::Set(d, -127.0f);
  Int8IntVector sum = hn::Zero(di);
  ForEachVectorOfRow(x, k, [&](Int8FloatVector v, int i) HWY_ATTR {
    const Int8IntVector r = hn::NearestInt(hn::Min(hn::Max(hn::Mul(v, factor), least), most));
    sum = hn::Add(sum, r);
    if (for_table) {
      Dot::StoreT(hn::Add(r, hn::Set(di, 127)), of_table + i);
    } else {
      Dot::StoreX(r, for_product + i);
    }
  });
  // Past the values weights are zeros, but stored as kByteZero in a product.
  const int lanes = static_cast<int>(hn::Lanes(d));
  for (int i = (k + lanes - 1) / lanes * lanes; i < padded; ++i) {
    if (for_table) {
      of_table[i] = 0;
    } else {
      for_product[i] = 0;
    }
  }
  ByteRow row;
  row.extra = hn::GetLane(hn::SumOfLanes(di, sum)) * kByteZero;
  return row;
}

// kRows rows of x by kVectors vectors of columns of a panel.
template <class Dot, int kRows, int kVectors>
HWY_INLINE void MultiplyByteTile(const ByteCall& call, int row, int panel, size_t column) {
  using X = typename Dot::X;
  const Int8Float d;
  const Int8Int di;
  const size_t lanes = hn::Lanes(d);
  const size_t vector_bytes = lanes * Dot::kDepth;
  const uint8_t* w = call.weights + static_cast<size_t>(panel) * call.k + column * Dot::kDepth;
  const X* x = static_cast<const X*>(call.x) + static_cast<size_t>(row) * call.k;
  const size_t k = static_cast<size_t>(call.k);
  // A lone row has two sums in turn, since the next addition to one waits for the last.
  constexpr int kTurns = kRows == 1 ? 2 : 1;
  constexpr size_t kStepBytes = size_t{kByteColumns} * Dot::kDepth;
  typename Dot::Sums sums[kRows * kTurns][kVectors];
  for (int r = 0; r < kRows * kTurns; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Dot::Zero();
  }
  // The first four tiles of many rows ask for the next panel, a quarter each: the processor alone
  // does not look past a page of memory.
  const bool is_asking = call.rows >= 4 * kRows && panel + kByteColumns < call.n;
  const size_t quarter = kByteColumns * k / 4;
  const uint8_t* ahead = w + (is_asking ? 4 + std::min(row / kRows, 3) : 0) * quarter;
  for (size_t i = 0; i < k; i += kTurns * Dot::kDepth, ahead += kStepBytes / 4) {
    if constexpr (kRows > 1) hwy::Prefetch(ahead);
    for (int turn = 0; turn < kTurns; ++turn) {
      for (int v = 0; v < kVectors; ++v) {
        if constexpr (kRows == 1) hwy::Prefetch(w + 4096 + v * vector_bytes);
        const auto weights = Dot::Load(w + v * vector_bytes);
        for (int r = 0; r < kRows; ++r) {
          Dot::Add(weights, x + r * k + i + turn * Dot::kDepth, &sums[r * kTurns + turn][v]);
        }
      }
      w += kStepBytes;
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    const size_t first = panel + column + v * lanes;
    const Int8IntVector offset = hn::LoadU(di, call.offsets + first);
    const Int8FloatVector bias = hn::LoadU(d, call.bias + first);
    for (int r = 0; r < kRows; ++r) {
      const ByteRow& x_row = call.x_rows[row + r];
      const Int8IntVector extra = hn::Sub(offset, hn::Set(di, x_row.extra));
      Int8IntVector total = Dot::Total(sums[r * kTurns][v]);
      if constexpr (kTurns == 2) total = hn::Add(total, Dot::Total(sums[1][v]));
      const Int8FloatVector sum = hn::ConvertTo(d, hn::Add(total, extra));
      Int8FloatVector value = hn::Add(hn::Mul(sum, hn::Set(d, x_row.scale)), bias);
      if (call.relu) value = Larger(hn::Zero(d), value);
      float* const y = call.y + (row + r) * call.y_stride + first;
      if (first + lanes <= static_cast<size_t>(call.n)) {
        hn::StoreU(value, d, y);
        continue;
      }
      HWY_ALIGN float last[16];
      hn::Store(value, d, last);
      for (size_t j = 0; first + j < static_cast<size_t>(call.n); ++j) y[j] = last[j];
    }
  }
}

template <class Dot, int kRows>
HWY_INLINE void MultiplyByteRows(const ByteCall& call, int row, int panel) {
  for (; row + kRows <= call.rows; row += kRows) {
    constexpr int kVectors = Dot::Vectors(kRows);
    const size_t step = kVectors * hn::Lanes(Int8Float());
    for (size_t column = 0; column < kByteColumns; column += step) {
      MultiplyByteTile<Dot, kRows, kVectors>(call, row, panel, column);
    }
  }
  if constexpr (kRows > 1) {
    if (row < call.rows) MultiplyByteRows<Dot, kRows - 1>(call, row, panel);
  }
}

template <class Dot>
HWY_INLINE void MultiplyBytes(const ByteCall& call) {
  for (int panel = 0; panel < call.n; panel += kByteColumns) {
    MultiplyByteRows<Dot, Dot::kMaxRows>(call, 0, panel);
  }
}

template <class Dot>
HWY_INLINE void MultiplyByteTable(const ByteTableCall& call) {
  using T = typename Dot::T;
  constexpr int kAhead = 8;  // rows of the table
  const size_t k = static_cast<size_t>(call.k);
  const auto id_of = [&](int j) -> size_t {
    return call.ids == nullptr ? call.first + j : call.ids[j];
  };
  for (int j = 0; j < call.count; j += 4) {
    const int columns = call.count - j < 4 ? call.count - j : 4;
    const int8_t* w[4];
    int32_t offsets[4] = {};
    for (int c = 0; c < 4; ++c) {
      const size_t id = id_of(c < columns ? j + c : j);
      w[c] = call.table + id * k;
      if (call.offsets != nullptr) offsets[c] = call.offsets[id];
      if (j + c + kAhead >= call.count) continue;
      const int8_t* const ahead = call.table + id_of(j + c + kAhead) * k;
      for (size_t i = 0; i < k; i += 64) hwy::Prefetch(ahead + i);
    }
    for (int r = 0; r < call.rows; ++r) {
      const T* const x = static_cast<const T*>(call.x) + r * k;
      typename Dot::Row rows[4];
      for (int c = 0; c < 4; ++c) rows[c] = Dot::ZeroRow();
      for (size_t i = 0; i < k; i += Dot::RowStep()) {
        for (int c = 0; c < 4; ++c) Dot::AddRow(w[c] + i, x + i, &rows[c]);
      }
      int32_t sums[4];
      Dot::SumsOf4(rows, sums);
      float* const z = call.z + r * call.z_stride + j;
      for (int c = 0; c < columns; ++c) {
        z[c] = static_cast<float>(sums[c] + offsets[c]) * call.x_rows[r].scale;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
