// Embed of a program (program.h): rows of a table, scaled, plus sinusoids of their positions.
#ifndef SRU_KERNELS_CPU_PROGRAMS_PROGRAM_EMBED_H_
#define SRU_KERNELS_CPU_PROGRAMS_PROGRAM_EMBED_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/base/aligned_buffer.h"
#include "kernels/cpu/base/bfloat16.h"
#include "kernels/program.h"
#include "kernels/weight_source.h"

namespace sru::kernels::cpu {

// Immutable and thread-safe.
class EmbedTable {
 public:
  // Keeps the table in bfloat16 with `rounds`. Throws std::bad_alloc.
  EmbedTable(const ops::Embed& op, bool rounds, WeightSource* source);

  // y [width] = scale * E[id] + P[position], the latter with op.positions only.
  void Row(int32_t id, int64_t position, float* y) const;

  size_t bytes() const;

 private:
  // P[position][column].
  float Sinusoid(int64_t position, size_t column) const;

  size_t width_;
  float scale_;
  bool positions_;
  AlignedBuffer table_;              // [vocabulary][width], or
  AlignedArray<BFloat16> rounded_;   // the same
  std::vector<double> wavelengths_;  // 10000^(2i / width)
  AlignedBuffer sinusoids_;          // [first positions][width]
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_PROGRAM_EMBED_H_
