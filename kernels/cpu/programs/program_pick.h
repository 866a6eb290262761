// Picks a symbol from a row of logits, by the equations of ops::Predict (program.h). It sorts no
// row: where the best ones end is found by halving, with sums of the whole row, and by partial
// selection among the few that are left.
#ifndef SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PICK_H_
#define SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PICK_H_

#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/cpu/base/run_memory.h"
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
  // Makes room for rows of so many symbols with their padding, whose logits are -infinity; before
  // LayOut().
  void Add(size_t padded_size);
  void LayOut(RunPlan* plan);

  // z' of all symbols, the largest of which is finite; temperature > 0. kNone when there is nothing
  // to pick from, because logits are no numbers.
  int32_t Pick(const float* z, size_t padded_size, float largest, const Sampling& sampling);

 private:
  // The symbols that stay: those with n >= least that are at least as good as the worst.
  struct Kept {
    float worst = -std::numeric_limits<float>::infinity();  // its logit
    uint32_t worst_id = std::numeric_limits<uint32_t>::max();
    float least = 0;
  };
  bool Keeps(const Kept& kept, const float* z, size_t id) const {
    const bool good = z[id] > kept.worst || (z[id] == kept.worst && id <= kept.worst_id);
    return good && n_.data()[id] >= kept.least;
  }

  // The sum of n where z >= worst and n >= least.
  uint64_t SumRange(const float* z, size_t begin, size_t end, float worst, float least) const;
  // Sets the sum of each part of the row, and returns that of the row.
  uint64_t SumParts(const float* z, size_t size, const Kept& kept);
  // Keeps the best of what is kept, as few as are enough. total(worst, least) is the sum of
  // weight(id) over what has z >= worst and n >= least.
  template <typename Total, typename Weight, typename Enough>
  void KeepBest(const float* z, size_t size, float largest, float temperature, const Total& total,
                const Weight& weight, const Enough& enough, Kept* kept);

  RunArray<float> n_;        // whole numbers, at most 2^32, which float32 holds exactly
  RunArray<uint64_t> sums_;  // of parts of n_
  RunArray<int32_t> ids_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_PROGRAMS_PROGRAM_PICK_H_
