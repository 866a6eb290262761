// Products by int8 weights (int8_product.h): what an implementation is given.
#ifndef SRU_KERNELS_CPU_INT8_INT8_KERNEL_H_
#define SRU_KERNELS_CPU_INT8_INT8_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/int8/byte_kernel.h"

namespace sru::kernels::cpu {

// Weights are packed so that a row of x reads them once, from the first byte to the last: in chunks
// of kInt8Chunk rows of the matrix, the last one filled up to kInt8RowAlignment; in a chunk in
// blocks of kInt8Columns columns, the last one narrower; in a block `depth` rows at a time, a
// column's values of them beside each other. A value is stored as its sum with kInt8Zero.
inline constexpr int kInt8Columns = 64;
inline constexpr int kInt8RowAlignment = 4;
inline constexpr int kInt8Zero = 128;
// The largest magnitude of a value of x in fixed point: two bytes, each from -128 to 127.
inline constexpr int kInt8LargestX = 127 * 256;
// The most rows whose sum of products is always an int32.
inline constexpr int kInt8Chunk = 512;
static_assert(int64_t{kInt8Chunk} * kInt8LargestX * 127 <= INT32_MAX);
// Rows of x and columns of the matrix whose values are all below this count as 0.
inline constexpr float kInt8Tiny = 1e-30f;

struct Int8Call {
  int k = 0;
  int n = 0;  // a whole number of vectors (row_layout.h)
  const uint8_t* weights = nullptr;
  const float* scales = nullptr;  // [n]
  const float* x = nullptr;       // [rows][k]
  int rows = 0;
  float* y = nullptr;  // [rows][n]
};

// Both kinds of products by whole numbers: of float32 values of x that are taken to fixed point,
// and of bytes (byte_kernel.h).
struct Int8Kernel {
  const char* (*name)();
  int depth;
  void (*multiply)(const Int8Call& call);
  size_t byte_size;  // of a value of x in products of bytes
  // r_j = x_j a to the nearest, within -127 and 127; zeros up to `padded`. For tables r_j + 127 is
  // stored.
  ByteRow (*round_bytes)(const float* x, int k, int padded, float a, bool for_table, void* rounded);
  void (*multiply_bytes)(const ByteCall& call);
  void (*multiply_byte_table)(const ByteTableCall& call);
};

// By products of pairs of 16-bit numbers, which every instruction set has.
const Int8Kernel& PairInt8Kernel();
// By AVX512_VNNI's products of four bytes: only for processors with HasAvx512Vnni() (cpu_isa.h).
const Int8Kernel& VnniInt8Kernel();
// The faster one of those that the processor has and the process may use (ChooseCpuIsa()).
const Int8Kernel& BestInt8Kernel();

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_INT8_INT8_KERNEL_H_
