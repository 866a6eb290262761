// Products by int8 weights (int8_product.h) for the instruction set that the including file is
// compiled for. Included once per target, as Highway's -inl headers are. How products are added up
// is a policy, Dot, which has
//   kDepth                     rows of the matrix that are multiplied together
//   kMaxRows                   most rows of x that share the weights in registers
//   Vectors(rows)              vectors of columns that are computed together for so many rows
//   Sums                       of one vector of columns
//   Load(weights)              one vector of columns, kDepth rows
//   Add(weights, x, &sums)     adds their products with kDepth values of x
//   Total(sums)                the int32 sums of the columns
//   Store(q, x)                values of x in fixed point, as Add() takes them: 2 bytes each
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "kernels/cpu/base/larger-inl.h"
#include "kernels/cpu/int8/int8_kernel.h"

#if defined(SRU_KERNELS_CPU_INT8_INT8_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SRU_KERNELS_CPU_INT8_INT8_KERNEL_INL_H_
#undef SRU_KERNELS_CPU_INT8_INT8_KERNEL_INL_H_
#else
#define SRU_KERNELS_CPU_INT8_INT8_KERNEL_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace sru::kernels::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Int8Float = hn::CappedTag<float, 16>;
using Int8Int = hn::RebindToSigned<Int8Float>;
using Int8FloatVector = hn::Vec<Int8Float>;
using Int8IntVector = hn::Vec<Int8Int>;

// Rows of x that are in fixed point at a time: they stay in the first-level cache, on the stack.
constexpr int kInt8Rows = 24;
// Bytes that a lone row asks for ahead of the weights that it multiplies. With 2048, which comes to
// less than what memory delivers within its latency, a step of a large language model takes 5 to
// 15% longer.
constexpr size_t kInt8Ahead = 8192;

// Calls body(values, i) for vectors of a row, the last one filled up with zeros.
template <class Body>
HWY_INLINE void ForEachVectorOfRow(const float* x, int k, const Body& body) {
  const Int8Float d;
  const int lanes = static_cast<int>(hn::Lanes(d));
  int i = 0;
  for (; i + lanes <= k; i += lanes) body(hn::LoadU(d, x + i), i);
  if (i == k) return;
  HWY_ALIGN float last[16] = {};
  for (int j = i; j < k; ++j) last[j - i] = x[j];
  body(hn::Load(d, last), i);
}

// The magnitude of the largest value of a row, which is NaN if there is one: in the order of their
// bits.
HWY_INLINE float LargestMagnitude(const float* x, int k) {
  const Int8Float d;
  const Int8Int di;
  Int8IntVector largest = hn::Zero(di);
  ForEachVectorOfRow(x, k, [&](Int8FloatVector v, int /*i*/) HWY_ATTR {
    largest = hn::Max(largest, hn::BitCast(di, hn::Abs(v)));
  });
  return hn::GetLane(hn::BitCast(d, hn::MaxOfLanes(di, largest)));
}

// A row in fixed point, filled up with zeros to `padded` values. Returns what kInt8Zero adds to its
// sums of products.
template <class Dot>
HWY_INLINE int32_t ToFixedPoint(const float* x, int k, int padded, float factor, int16_t* fixed) {
  const Int8Int di;
  // Unless a vector fills up as many.
  if (hn::Lanes(di) < kInt8RowAlignment) {
    for (int i = k; i < padded; ++i) fixed[i] = 0;
  }
  const Int8FloatVector factors = hn::Set(Int8Float(), factor);
  Int8IntVector sum = hn::Zero(di);
  ForEachVectorOfRow(x, k, [&](Int8FloatVector v, int i) HWY_ATTR {
    const Int8IntVector q = hn::NearestInt(hn::Mul(v, factors));
    sum = hn::Add(sum, q);
    Dot::Store(q, fixed + i);
  });
  return hn::GetLane(hn::Mul(hn::Set(di, kInt8Zero), hn::SumOfLanes(di, sum)));
}

// One chunk of kRows rows of x and one block of the weights.
struct Int8Block {
  int steps = 0;          // of kDepth rows of the matrix
  size_t step_bytes = 0;  // of the block's weights
  const uint8_t* weights = nullptr;
  const int16_t* x = nullptr;      // [rows][kInt8Chunk]
  const int32_t* extra = nullptr;  // [row]: what kInt8Zero adds to every sum
  bool first = false;              // of the chunks
  bool last = false;
  const float* scales = nullptr;      // of the block's columns
  const float* row_scales = nullptr;  // [row]
  float* y = nullptr;                 // [rows][n]
  size_t n = 0;
};

template <class Dot, int kRows, int kVectors>
HWY_INLINE void MultiplyTile(const Int8Block& b, size_t column) {
  const Int8Float d;
  const Int8Int di;
  const size_t lanes = hn::Lanes(d);
  typename Dot::Sums sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = Dot::Zero();
  }
  const size_t vector_bytes = lanes * Dot::kDepth;
  const size_t step_bytes = b.step_bytes;
  const uint8_t* w = b.weights + column * Dot::kDepth;
  const int16_t* x = b.x;
  for (int step = 0; step < b.steps; ++step) {
    if constexpr (kRows == 1) {
      for (size_t line = 0; line < kVectors * vector_bytes; line += 64) {
        hwy::Prefetch(w + kInt8Ahead + line);
      }
    }
    for (int v = 0; v < kVectors; ++v) {
      const auto weights = Dot::Load(w + v * vector_bytes);
      for (int r = 0; r < kRows; ++r) Dot::Add(weights, x + r * kInt8Chunk, &sums[r][v]);
    }
    w += step_bytes;
    x += Dot::kDepth;
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) {
      float* const y = b.y + r * b.n + column + v * lanes;
      const Int8IntVector total = hn::Sub(Dot::Total(sums[r][v]), hn::Set(di, b.extra[r]));
      Int8FloatVector value = hn::ConvertTo(d, total);
      if (!b.first) value = hn::Add(value, hn::LoadU(d, y));
      if (b.last) {
        const Int8FloatVector scale = hn::LoadU(d, b.scales + column + v * lanes);
        value = hn::Mul(hn::Mul(value, scale), hn::Set(d, b.row_scales[r]));
      }
      hn::StoreU(value, d, y);
    }
  }
}

// Columns [column, columns) of kRows rows.
template <class Dot, int kRows, int kVectors>
HWY_INLINE void MultiplyColumns(const Int8Block& b, size_t column, size_t columns) {
  const size_t width = kVectors * hn::Lanes(Int8Float());
  for (; column + width <= columns; column += width) {
    MultiplyTile<Dot, kRows, kVectors>(b, column);
  }
  if constexpr (kVectors > 1) {
    if (column < columns) MultiplyColumns<Dot, kRows, kVectors / 2>(b, column, columns);
  }
}

// `rows` rows, at most kRows at a time.
template <class Dot, int kRows>
HWY_INLINE void MultiplyRows(Int8Block b, int rows, size_t columns) {
  for (; rows >= kRows; rows -= kRows) {
    MultiplyColumns<Dot, kRows, Dot::Vectors(kRows)>(b, 0, columns);
    b.x += kRows * kInt8Chunk;
    b.extra += kRows;
    b.row_scales += kRows;
    b.y += kRows * b.n;
  }
  if constexpr (kRows > 1) {
    if (rows > 0) MultiplyRows<Dot, kRows - 1>(b, rows, columns);
  }
}

// The scale of a row in fixed point, and the factor that takes its values there. With a value that
// is not finite products become NaN, and if all are tiny, 0.
HWY_INLINE void ScaleRow(const float* x, int k, float* scale, float* factor) {
  const float largest = LargestMagnitude(x, k);
  *scale = *factor = 0;
  if (largest < kInt8Tiny) return;
  *scale = largest / kInt8LargestX;
  *factor = kInt8LargestX / largest;
  if (largest == HUGE_VALF) *scale = NAN;
}

template <class Dot>
HWY_INLINE void MultiplyInt8(const Int8Call& call) {
  HWY_ALIGN int16_t fixed[kInt8Rows * kInt8Chunk];
  int32_t extra[kInt8Rows];
  float scales[kInt8Rows];
  float factors[kInt8Rows];
  const size_t k = static_cast<size_t>(call.k);
  for (int first_row = 0; first_row < call.rows; first_row += kInt8Rows) {
    const int rows = call.rows - first_row < kInt8Rows ? call.rows - first_row : kInt8Rows;
    const float* const x = call.x + first_row * k;
    for (int r = 0; r < rows; ++r) ScaleRow(x + r * k, call.k, &scales[r], &factors[r]);
    const uint8_t* weights = call.weights;
    for (int first = 0; first < call.k; first += kInt8Chunk) {
      const int size = call.k - first < kInt8Chunk ? call.k - first : kInt8Chunk;
      const int padded = (size + kInt8RowAlignment - 1) / kInt8RowAlignment * kInt8RowAlignment;
      for (int r = 0; r < rows; ++r) {
        int16_t* const fixed_row = fixed + r * kInt8Chunk;
        if (scales[r] != scales[r]) {  // NaN, as all products of the row become
          for (int i = 0; i < padded; ++i) fixed_row[i] = 0;
          extra[r] = 0;
          continue;
        }
        extra[r] = ToFixedPoint<Dot>(x + r * k + first, size, padded, factors[r], fixed_row);
      }
      Int8Block b;
      b.steps = padded / Dot::kDepth;
      b.x = fixed;
      b.extra = extra;
      b.first = first == 0;
      b.last = first + size == call.k;
      b.row_scales = scales;
      b.n = static_cast<size_t>(call.n);
      for (int column = 0; column < call.n; column += kInt8Columns) {
        const int columns = call.n - column < kInt8Columns ? call.n - column : kInt8Columns;
        b.step_bytes = static_cast<size_t>(columns) * Dot::kDepth;
        b.weights = weights;
        b.scales = call.scales + column;
        b.y = call.y + first_row * b.n + column;
        MultiplyRows<Dot, Dot::kMaxRows>(b, rows, static_cast<size_t>(columns));
        weights += static_cast<size_t>(padded) * columns;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace sru::kernels::cpu
HWY_AFTER_NAMESPACE();

#endif
