// Products y = x w with w in int8: half of bfloat16's memory to read, which is what a product of a
// few rows takes its time for.
//
// w is rounded to 8 bits with one scale for each of its columns, the largest magnitude / 127. x is
// float32 and is taken to 16 bits of fixed point in a scale of its row, the largest magnitude /
// 32512. That is exact enough to leave the error to the weights: a value of x is off by at most 1 /
// 65024 of the row's largest, which itself meets a weight that is off by up to 1 / 254 of its
// column's largest. In return the sums of products are whole numbers, which are exact: they do not
// depend on the order of adding, and so a row's result has the same bits for any number of rows and
// on every instruction set. Sums of kInt8Chunk (int8_kernel.h) products are added in float32, in
// order, and multiplied with the two scales.
//
// A row of x with a value that is not finite gives NaN, as does such a column of w; rows below
// 1e-30 and columns below 1e-30 count as 0.
#ifndef SRU_KERNELS_CPU_INT8_INT8_PRODUCT_H_
#define SRU_KERNELS_CPU_INT8_INT8_PRODUCT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/int8/int8_kernel.h"

namespace sru::kernels::cpu {

// A weight matrix in int8, packed for one kernel. Immutable, thread-safe.
class Int8Matrix {
 public:
  Int8Matrix() = default;
  // `weights` is [k][n], n a multiple of kRowAlignment; it is copied. Throws std::bad_alloc.
  Int8Matrix(const float* weights, int k, int n, const Int8Kernel& kernel = BestInt8Kernel());

  // x [rows][k], y [rows][n]. Needs no memory but the stack.
  void Multiply(const float* x, int rows, float* y) const;

  size_t bytes() const { return weights_.bytes() + scales_.bytes(); }

 private:
  const Int8Kernel* kernel_ = nullptr;
  int k_ = 0;
  int n_ = 0;
  AlignedArray<uint8_t> weights_;
  AlignedBuffer scales_;  // [n]
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_INT8_INT8_PRODUCT_H_
