// Products by int8 weights (int8_product.h): what an implementation is given.
#ifndef SRU_KERNELS_CPU_INT8_INT8_KERNEL_H_
#define SRU_KERNELS_CPU_INT8_INT8_KERNEL_H_

#include <cstddef>
#include <cstdint>

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

// Products of bytes (byte_product.h). Weights w are packed so that a tile of rows reads them from
// the first byte to the last: in panels of kByteColumns columns of y, zeros filling up the last
// one; in a panel `depth` rows of the matrix at a time, a column's values of them beside each
// other. A value is stored as w + kByteZero.
inline constexpr int kByteColumns = 64;
inline constexpr int kByteZero = 128;
// Rows of weights and of x are filled up with zeros to a multiple of this.
inline constexpr int kByteRowAlignment = 64;
// Rows of x that are rounded together.
inline constexpr int kByteRows = 96;

// A row of x in whole numbers r, as the kernel's products take it.
struct ByteRow {
  float scale = 0;    // of its sums of products
  int32_t extra = 0;  // kByteZero sum_j r_j
};

// y_i = (sum_j r_j w_ij + offset_i) * scale + bias_i, or max(0, y_i).
struct ByteCall {
  int k = 0;                         // padded
  int n = 0;                         // columns of y
  const uint8_t* weights = nullptr;  // packed, padded
  const int32_t* offsets = nullptr;  // [n and padding]
  const float* bias = nullptr;       // [n and padding]
  bool relu = false;
  const void* x = nullptr;  // [rows][k]
  const ByteRow* x_rows = nullptr;
  int rows = 0;
  float* y = nullptr;  // [rows][y_stride]
  size_t y_stride = 0;
};

// z_j = (sum_i r_i w_i + offset) * scale, w and offset being those of a row of a table.
struct ByteTableCall {
  int k = 0;                         // padded
  const int8_t* table = nullptr;     // [][k]
  const int32_t* offsets = nullptr;  // [row of the table]; null = 0
  const int32_t* ids = nullptr;      // rows of the table; null = from `first` on
  int first = 0;
  int count = 0;
  const void* x = nullptr;  // [rows][k], rounded for tables
  const ByteRow* x_rows = nullptr;
  int rows = 0;
  float* z = nullptr;  // [rows][z_stride]
  size_t z_stride = 0;
};

// Both kinds of products by whole numbers: of float32 values of x that are taken to fixed point,
// and of bytes.
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
