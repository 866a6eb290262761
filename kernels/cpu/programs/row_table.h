// Weights of a program (program.h) that are kept row by row, for what reads or multiplies some of
// the rows: Embed, and Predict with choices or rounded weights. Operations with tied weights share
// one.
#ifndef SRU_KERNELS_CPU_PROGRAMS_ROW_TABLE_H_
#define SRU_KERNELS_CPU_PROGRAMS_ROW_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/program.h"
#include "kernels/weight_source.h"

namespace sru::kernels::cpu {

// Immutable and thread-safe.
class RowTable {
 public:
  // [rows][width]; keeps them in bfloat16 with `rounds`. Throws std::bad_alloc.
  RowTable(const FloatView& values, size_t width, bool rounds, WeightSource* source);
  // Keeps the whole numbers.
  RowTable(const Int8View& values, size_t width);

  size_t width() const { return width_; }
  // A row in float32: a pointer to it, or `scratch` [width], where it has been put.
  const float* Row(size_t id, float* scratch) const;

  // z[r][j] = row ids[j] . x_r for rows of x, [rows][width]. z is [rows][stride], `scratch`
  // [4][width].
  void Multiply(const float* x, int rows, const int32_t* ids, int count, float* scratch, float* z,
                size_t stride) const;
  // The whole numbers, [rows][PaddedBytes(width)]; null if there are none.
  const int8_t* int8() const { return int8_.size() > 0 ? int8_.data() : nullptr; }

  size_t bytes() const { return floats_.bytes() + rounded_.bytes() + int8_.bytes(); }

 private:
  size_t width_;
  // One of these, [rows][width], of the last one with padding:
  AlignedBuffer floats_;
  AlignedArray<BFloat16> rounded_;
  AlignedArray<int8_t> int8_;
  float unit_ = 0;  // of int8_
};

// Embed: rows of a table, scaled, plus sinusoids of their positions. Immutable and thread-safe.
class EmbedTable {
 public:
  // `table` is E. Throws std::bad_alloc.
  EmbedTable(const ops::Embed& op, std::shared_ptr<const RowTable> table);

  // y [width] = scale * E[id] + P[position].
  void Row(int32_t id, int64_t position, float* y) const;

  size_t bytes() const;  // without E

 private:
  // P[position][column].
  float Sinusoid(int64_t position, size_t column) const;

  size_t width_;
  float scale_;
  ops::Positions positions_;
  std::shared_ptr<const RowTable> table_;
  std::vector<double> wavelengths_;  // of each pair of columns
  AlignedBuffer sinusoids_;          // [first positions][width]
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_ROW_TABLE_H_
