// PackedRows: the sequences of one axis of a batch, packed into buffers that are allocated once.
#ifndef SRU_SERVER_TASKS_PROGRAMS_PACKED_ROWS_H_
#define SRU_SERVER_TASKS_PROGRAMS_PACKED_ROWS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"

namespace sru::server::tasks {

struct PackedRows {
  using Slot = kernels::StateArena::Slot;

  PackedRows(int max_rows, int max_sequences)
      : offsets(max_sequences + 1), ids(max_rows), slots(max_sequences) {}
  explicit PackedRows(const kernels::AxisLimits& limits)
      : PackedRows(limits.max_rows, limits.max_sequences) {}

  void Clear() { num_sequences = num_rows = 0; }
  // kInternal if a sequence of `count` rows is too much.
  absl::Status CheckRoom(int count) const {
    if (num_sequences < static_cast<int>(slots.size()) &&
        count <= static_cast<int>(ids.size()) - num_rows) {
      return absl::OkStatus();
    }
    return absl::InternalError(absl::StrCat("the batch is over the workspace's limits of ",
                                            ids.size(), " tokens and ", slots.size(),
                                            " sequences"));
  }
  // Returns the first row. Null tokens are zeros.
  int Add(const int32_t* tokens, int count, Slot slot = kernels::StateArena::kNoSlot) {
    const int first = num_rows;
    if (tokens == nullptr) {
      std::fill_n(ids.begin() + first, count, 0);
    } else {
      std::copy_n(tokens, count, ids.begin() + first);
    }
    slots[num_sequences] = slot;
    num_rows += count;
    offsets[++num_sequences] = num_rows;
    return first;
  }
  kernels::AxisBatch axis() const { return {num_sequences, offsets.data(), slots.data()}; }

  int num_sequences = 0;
  int num_rows = 0;
  std::vector<int32_t> offsets;
  std::vector<int32_t> ids;
  std::vector<Slot> slots;
};

// With what a model that predicts tokens is asked of each row, and its answer.
struct PredictedRows : PackedRows {
  PredictedRows(int max_rows, int max_sequences)
      : PackedRows(max_rows, max_sequences),
        targets(max_rows),
        counts(max_rows),
        log_probs(max_rows) {}

  // Adds a sequence for which no prediction is wanted.
  int Add(const int32_t* tokens, int count, Slot slot = kernels::StateArena::kNoSlot) {
    const int first = PackedRows::Add(tokens, count, slot);
    std::fill_n(targets.begin() + first, count, -1);
    std::fill_n(counts.begin() + first, count, 0);
    return first;
  }
  // Adds a sequence for which the probability of each token is wanted, and at each place the
  // `num_candidates` most probable tokens. A `fresh` sequence has nothing before its first token,
  // so that token is not predicted.
  int AddScored(const int32_t* tokens, int count, int num_candidates, bool fresh, Slot slot) {
    const int first = PackedRows::Add(tokens, count, slot);
    std::copy_n(tokens, count, targets.begin() + first);
    std::fill_n(counts.begin() + first, count, num_candidates);
    if (fresh) {
      targets[first] = -1;
      counts[first] = 0;
    }
    return first;
  }

  std::vector<int32_t> targets;  // -1: none
  std::vector<int32_t> counts;   // of candidates
  std::vector<float> log_probs;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_PROGRAMS_PACKED_ROWS_H_
