// Products of bytes (byte_product.h): what an implementation is given.
#ifndef SRU_KERNELS_CPU_INT8_BYTE_KERNEL_H_
#define SRU_KERNELS_CPU_INT8_BYTE_KERNEL_H_

#include <cstddef>
#include <cstdint>

namespace sru::kernels::cpu {

// Weights w are packed so that a tile of rows reads them from the first byte to the last: in panels
// of kByteColumns columns of y, zeros filling up the last one; in a panel `depth` rows of the
// matrix at a time, a column's values of them beside each other. A value is stored as w +
// kByteZero.
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

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_INT8_BYTE_KERNEL_H_
