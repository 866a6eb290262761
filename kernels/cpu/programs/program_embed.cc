#include "kernels/cpu/programs/program_embed.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/base/bfloat16_rows.h"
#include "kernels/cpu/programs/program_rows.h"

namespace sru::kernels::cpu {
namespace {

// Positions whose sinusoids are computed at load; those of later ones are computed when they occur.
constexpr int64_t kTablePositions = 1024;

}  // namespace

EmbedTable::EmbedTable(const ops::Embed& op, bool rounds, WeightSource* source)
    : width_(op.width), scale_(op.scale), positions_(op.positions) {
  const size_t size = static_cast<size_t>(op.vocabulary_size) * width_;
  if (rounds) {
    rounded_ = AlignedArray<BFloat16>(size);
  } else {
    table_ = AlignedBuffer(size);
  }
  ReadRows(source, op.table, width_, [&](size_t first, size_t rows, const float* values) {
    if (rounds) {
      ToBFloat16Row(values, rows * width_, rounded_.data() + first * width_);
    } else {
      std::copy_n(values, rows * width_, table_.data() + first * width_);
    }
  });
  if (!positions_) return;
  for (size_t i = 0; i < width_; i += 2) {
    wavelengths_.push_back(std::pow(10000.0, static_cast<double>(i) / static_cast<double>(width_)));
  }
  sinusoids_ = AlignedBuffer(kTablePositions * width_);
  for (int64_t position = 0; position < kTablePositions; ++position) {
    for (size_t j = 0; j < width_; ++j) {
      sinusoids_.data()[position * width_ + j] = Sinusoid(position, j);
    }
  }
}

void EmbedTable::Row(int32_t id, int64_t position, float* y) const {
  const size_t from = id * width_;
  const float* row = y;
  if (rounded_.size() > 0) {
    ToFloatRow(rounded_.data() + from, width_, y);
  } else {
    row = table_.data() + from;
  }
  if (!positions_) {
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
  const double angle = static_cast<double>(position) / wavelengths_[column / 2];
  return static_cast<float>(column % 2 == 0 ? std::sin(angle) : std::cos(angle));
}

size_t EmbedTable::bytes() const {
  return table_.bytes() + rounded_.bytes() + sinusoids_.bytes() +
         wavelengths_.size() * sizeof(double);
}

}  // namespace sru::kernels::cpu
