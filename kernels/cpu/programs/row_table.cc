#include "kernels/cpu/programs/row_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/base/bfloat16.h"
#include "kernels/cpu/base/block_sizes.h"
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

EmbedTable::EmbedTable(const ops::Embed& op, std::shared_ptr<const RowTable> table)
    : width_(op.width), scale_(op.scale), positions_(op.positions), table_(std::move(table)) {
  if (positions_ == ops::Positions::kNone) return;
  const size_t pairs = (width_ + 1) / 2;
  const double size = positions_ == ops::Positions::kHalves ? static_cast<double>(pairs - 1)
                                                            : static_cast<double>(width_) / 2;
  for (size_t i = 0; i < pairs; ++i) {
    wavelengths_.push_back(std::pow(10000.0, static_cast<double>(i) / size));
  }
  sinusoids_ = AlignedBuffer(kTablePositions * width_);
  for (int64_t position = 0; position < kTablePositions; ++position) {
    for (size_t j = 0; j < width_; ++j) {
      sinusoids_.data()[position * width_ + j] = Sinusoid(position, j);
    }
  }
}

void EmbedTable::Row(int32_t id, int64_t position, float* y) const {
  const float* row = y;
  if (id == kNone) {
    std::fill_n(y, width_, 0.0f);
  } else {
    row = table_->Row(id, y);
  }
  if (positions_ == ops::Positions::kNone) {
    ScaleRow(scale_, row, width_, y);
  } else if (position < kTablePositions) {
    ScaleAndAddRow(scale_, row, sinusoids_.data() + position * width_, width_, y);
  } else {
    // In parts, so that no row of memory is needed beside y.
    constexpr size_t kPart = 64;
    float sinusoids[kPart];
    for (size_t first = 0; first < width_; first += kPart) {
      const size_t count = std::min(kPart, width_ - first);
      for (size_t j = 0; j < count; ++j) sinusoids[j] = Sinusoid(position, first + j);
      ScaleAndAddRow(scale_, row + first, sinusoids, count, y + first);
    }
  }
}

float EmbedTable::Sinusoid(int64_t position, size_t column) const {
  const bool halves = positions_ == ops::Positions::kHalves;
  const size_t half = width_ / 2;
  const size_t pair = halves ? column % half : column / 2;
  const bool is_sine = halves ? column < half : column % 2 == 0;
  const double angle = static_cast<double>(position) / wavelengths_[pair];
  return static_cast<float>(is_sine ? std::sin(angle) : std::cos(angle));
}

size_t EmbedTable::bytes() const {
  return sinusoids_.bytes() + wavelengths_.size() * sizeof(double);
}

}  // namespace sru::kernels::cpu
