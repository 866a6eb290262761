// What calls a capacity plan is made for: how many, how long, by when.
#ifndef SRU_BENCH_CAPACITY_CALLS_H_
#define SRU_BENCH_CAPACITY_CALLS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/batching/batcher.h"

namespace sru::bench {

struct CallMix {
  std::vector<int> lengths;  // of sequences, in tokens: each is drawn from these; at least one
  int sequences = 1;         // of each call
  double low_share = 0;      // of the calls that have PRIORITY_LOW
  int64_t deadline_ns = 0;   // from the time at which a call is due; 0 = none

  double mean_tokens() const;  // of a call
  int longest() const;
};

// The lengths in a file: one whole number from 1 to 100000 a line; empty lines do not count. Errors name
// `flag`.
absl::StatusOr<std::vector<int>> ReadLengths(const std::string& path, absl::string_view flag);

// A call on its way through a simulation.
struct SimulatedCall {
  int64_t due_ns = 0;       // when the caller wanted it sent
  int64_t deadline_ns = 0;  // a time; 0 = none
  server::Priority priority = server::Priority::kNormal;
  int attempts = 0;  // that were begun
  int client = 0;
  int connection = 0;  // of the client or of the server, by who reads it
  uint64_t seed = 0;   // its lengths
};

// Draws calls. The same seed gives the same calls. Not thread-safe.
class CallSource {
 public:
  // `mix` must outlive this.
  CallSource(const CallMix* mix, uint64_t seed) : mix_(mix), random_(seed) {}

  SimulatedCall Draw(int64_t due_ns);

 private:
  const CallMix* const mix_;
  std::mt19937_64 random_;
};

// The sequences of a call, always the same ones.
std::vector<server::SequenceTask> SequencesOf(const CallMix& mix, const SimulatedCall& call);

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_CALLS_H_
