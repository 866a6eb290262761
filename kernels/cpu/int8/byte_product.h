// Products of weights that were rounded to int8 before they came here, with rows that are rounded
// to int8 too (program.h, "Rounded weights"). Sums are whole numbers and so exact: a row's result
// has the same bits for any number of rows and on every instruction set.
#ifndef SRU_KERNELS_CPU_INT8_BYTE_PRODUCT_H_
#define SRU_KERNELS_CPU_INT8_BYTE_PRODUCT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/run_memory.h"
#include "kernels/cpu/int8/int8_kernel.h"
#include "kernels/program.h"

namespace sru::kernels::cpu {

// How rows of x are rounded for weights, and what belongs to the weights' columns. Immutable.
struct ByteScales {
  // `weights` is [n][k]; `bias` [n] may be empty. Both vectors are filled up to `padded_n`. For
  // products or, `for_table`, those of a table.
  ByteScales(const Int8View& weights, size_t k, size_t n, const FloatView& bias, size_t padded_n,
             bool for_table);

  size_t bytes() const { return offsets.size() * sizeof(int32_t) + bias.bytes(); }

  float multiplier;
  float activation;              // 0: of each row
  std::vector<int32_t> offsets;  // of the columns' sums, as ByteCall and ByteTableCall have them
  AlignedBuffer bias;            // with what belongs to the shift of x
};

inline size_t PaddedBytes(size_t k) {
  return (k + kByteRowAlignment - 1) / kByteRowAlignment * kByteRowAlignment;
}

// The rounded rows of one thread. Not thread-safe.
class ByteRows {
 public:
  // Makes room for kByteRows rows of k values, before LayOut().
  void Add(size_t k) { x_.AtLeast(kByteRows * PaddedBytes(k) * sizeof(int16_t)); }
  void LayOut(RunPlan* plan) { plan->Add(&x_); }
  // Rounds at most kByteRows rows: those that `which` names, or the first ones if it is null.
  void Round(const Int8Kernel& kernel, const float* x, const int32_t* which, int rows, int k,
             const ByteScales& scales, bool for_table);

  const void* x() const { return x_.data(); }
  const ByteRow* rows() const { return rows_; }

 private:
  RunArray<uint8_t> x_;
  ByteRow rows_[kByteRows];
};

// The weights of a Linear, packed for one kernel. Immutable and thread-safe.
class ByteMatrix {
 public:
  // `weights` is [n][k]. Throws std::bad_alloc.
  ByteMatrix(const Int8View& weights, int k, int n, const FloatView& bias,
             const Int8Kernel& kernel = BestInt8Kernel());

  int k() const { return k_; }
  double operations(int rows) const { return 2.0 * rows * k_ * n_; }
  // y [rows][n] = W x + b, or max(0, y), for at most kByteRows rows of x.
  void Multiply(const float* x, int rows, bool relu, ByteRows* rounded, float* y) const;

  size_t bytes() const { return weights_.bytes() + scales_.bytes(); }

 private:
  const Int8Kernel* kernel_;
  int k_;
  int n_;
  AlignedArray<uint8_t> weights_;
  ByteScales scales_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_INT8_BYTE_PRODUCT_H_
