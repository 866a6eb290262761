#include "kernels/cpu/programs/program_embed.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/base/block_sizes.h"
#include "kernels/cpu/programs/program_rows.h"

namespace sru::kernels::cpu {
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
