// The batches that a worker runs before it serves.
#ifndef SRU_SERVER_BATCHING_WARM_UP_H_
#define SRU_SERVER_BATCHING_WARM_UP_H_

#include <algorithm>
#include <new>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/base/clock.h"

namespace sru::server::batching {

// Calls run(tokens) for 1, 8, 64, ... tokens up to `max_tokens`, each twice. Stops early if the
// next size would exceed a few tens of milliseconds, so that a server with a slow backend is ready
// soon, too. kResourceExhausted if run() throws std::bad_alloc: a model that does not fit fails to
// load.
template <typename Run>
absl::Status WarmUpBySize(int max_tokens, const Run& run) {
  constexpr int kGrowth = 8;
  constexpr absl::Duration kTime = absl::Milliseconds(60);
  const absl::Time start = SteadyNow();
  for (int tokens = 1;; tokens = std::min(tokens * kGrowth, max_tokens)) {
    const absl::Time step = SteadyNow();
    for (int i = 0; i < 2; ++i) {
      try {
        if (absl::Status status = run(tokens); !status.ok()) return status;
      } catch (const std::bad_alloc&) {
        return absl::ResourceExhaustedError("there is no memory to compute a batch");
      }
    }
    const absl::Time now = SteadyNow();
    if (tokens == max_tokens || now + (now - step) * kGrowth > start + kTime) {
      return absl::OkStatus();
    }
  }
}

// The number of tokens of sequence `index` when `num_tokens` are divided into equal parts.
inline int EqualPart(int num_tokens, int num_sequences, int index) {
  const int64_t tokens = num_tokens;
  return static_cast<int>(tokens * (index + 1) / num_sequences - tokens * index / num_sequences);
}

// How many sequences a batch of that many tokens is made of.
inline int WarmUpSequences(int num_tokens, int max_sequences) {
  constexpr int kSequenceLength = 16;
  return std::min(max_sequences, (num_tokens + kSequenceLength - 1) / kSequenceLength);
}

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_WARM_UP_H_
