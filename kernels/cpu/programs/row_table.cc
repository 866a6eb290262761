#include "kernels/cpu/programs/row_table.h"

#include <algorithm>

#include "kernels/cpu/base/bfloat16_rows.h"
#include "kernels/cpu/int8/byte_product.h"
#include "kernels/cpu/programs/program_rows.h"

namespace sru::kernels::cpu {

RowTable::RowTable(const FloatView& values, size_t width, bool rounds, WeightSource* source)
    : width_(width) {
  if (rounds) {
    rounded_ = AlignedArray<BFloat16>(values.size);
  } else {
    floats_ = AlignedBuffer(values.size);
  }
  ReadRows(source, values, width, [&](size_t first, size_t rows, const float* from) {
    if (rounds) {
      ToBFloat16Row(from, rows * width, rounded_.data() + first * width);
    } else {
      std::copy_n(from, rows * width, floats_.data() + first * width);
    }
  });
}

RowTable::RowTable(const Int8View& values, size_t width)
    : width_(width), unit_(1.0f / values.multiplier) {
  const size_t rows = values.size / width;
  int8_ = AlignedArray<int8_t>(rows * PaddedBytes(width));
  for (size_t row = 0; row < rows; ++row) {
    std::copy_n(values.data + row * width, width, int8_.data() + row * PaddedBytes(width));
  }
}

const float* RowTable::Row(size_t id, float* scratch) const {
  const size_t from = id * width_;
  if (floats_.size() > 0) return floats_.data() + from;
  if (rounded_.size() > 0) {
    ToFloatRow(rounded_.data() + from, width_, scratch);
  } else {
    Int8ToFloatRow(int8_.data() + id * PaddedBytes(width_), unit_, width_, scratch);
  }
  return scratch;
}

void RowTable::Multiply(const float* x, int rows, const int32_t* ids, int count, float* scratch,
                        float* z, size_t stride) const {
  for (int j = 0; j < count; j += 4) {
    const int columns = std::min(4, count - j);
    const float* four[4];
    for (int c = 0; c < 4; ++c) {
      four[c] = c < columns ? Row(ids[j + c], scratch + c * width_) : four[0];
    }
    for (int r = 0; r < rows; ++r) {
      float sums[4];
      DotFourRows(four, x + r * width_, width_, sums);
      std::copy_n(sums, columns, z + r * stride + j);
    }
  }
}

}  // namespace sru::kernels::cpu
