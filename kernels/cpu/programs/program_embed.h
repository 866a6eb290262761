// Embed of a program (program.h): rows of a table, scaled, plus sinusoids of their positions.
#ifndef SRU_KERNELS_CPU_PROGRAMS_PROGRAM_EMBED_H_
#define SRU_KERNELS_CPU_PROGRAMS_PROGRAM_EMBED_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/programs/row_table.h"
#include "kernels/program.h"

namespace sru::kernels::cpu {

// Immutable and thread-safe.
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

#endif  // SRU_KERNELS_CPU_PROGRAMS_PROGRAM_EMBED_H_
