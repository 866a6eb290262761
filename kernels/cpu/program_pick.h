// Picks a symbol from a row of logits, by the equations of ops::Predict (program.h). It sorts no row:
// the best symbols are found in a heap or by partial selection among those that can be kept.
#ifndef SRU_KERNELS_CPU_PROGRAM_PICK_H_
#define SRU_KERNELS_CPU_PROGRAM_PICK_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/cpu/aligned_buffer.h"
#include "kernels/program.h"

namespace sru::kernels::cpu {

// z' of a logit.
float Adjusted(const Adjustment& adjustment, float z);

// The symbol with this logit, the first of equals; `n` where there is none. Of whole vectors.
size_t FindLogit(const float* z, size_t n, float logit);
// The largest of n logits. Of whole vectors.
float LargestLogit(const float* z, size_t n);

// The memory of one thread. Not thread-safe.
class SymbolPicker {
 public:
  // Makes room for rows of so many symbols with their padding, whose logits are -infinity.
  void Add(size_t padded_size);

  // z' of all symbols, the largest of which is finite; temperature > 0. kNone when there is nothing
  // to pick from, because logits are no numbers.
  int32_t Pick(const float* z, size_t padded_size, float largest, const Sampling& sampling);

  size_t bytes() const { return n_.bytes() + sums_.size() * sizeof(uint64_t) + ids_.bytes(); }

 private:
  // What stays: symbols with n >= least that are at least as good as the worst.
  struct Kept {
    float worst;
    int32_t worst_id;
    float least;
  };

  // Sets the sum of each part of the row, and returns that of the row.
  uint64_t SumParts(const float* z, size_t size, const Kept& kept);
  void KeepBest(const float* z, size_t size, size_t k, Kept* kept);
  // The worst of the best symbols that have a sum of `wanted`.
  int32_t WorstOfNucleus(const float* z, size_t size, const Kept& kept, double sum, double part);

  AlignedBuffer n_;             // whole numbers, at most 2^32, which float32 holds exactly
  std::vector<uint64_t> sums_;  // of parts of n_
  AlignedArray<int32_t> ids_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAM_PICK_H_
