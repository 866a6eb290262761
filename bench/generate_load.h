// The load generator for Generate: keeps texts going on a server, and measures what those who wait
// for them see: the time to the first token, and the times between tokens.
//
// Closed loop (rate = 0): `sessions` texts are always on their way; when one has ended, the next
// one begins. Open loop (rate > 0): texts begin at Poisson arrivals, regardless of what the server
// does, and the time to the first token counts from the time at which a text was meant to begin.
//
// gRPC's callback API does the reading: a message has one token, and costs a few microseconds, of
// a machine that is shared with the server.
#ifndef SRU_BENCH_GENERATE_LOAD_H_
#define SRU_BENCH_GENERATE_LOAD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/histogram.h"
#include "bench/run.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

struct GenerateLoadOptions : RunOptions {
  GenerateLoadOptions() {
    max_outstanding = 5000;
    deadline = absl::InfiniteDuration();
    connections = 1;
  }

  int sessions = 1;  // closed loop only
  // The run ends with this many texts or at the end of its duration; 0 = no bound. Texts that are
  // on their way then are cancelled.
  int64_t texts = 0;
  // First makes each text once, one after the other, and then compares every token with these.
  bool check = false;
};

// Refusals are those before any token.
struct GenerateLoadResult : RunResult {
  int64_t lost = 0;  // texts that ended in the middle, before their deadline, without a state
  int64_t tokens = 0;
  int64_t checked_tokens = 0;  // that were compared, in the warm-up too
  int64_t wrong_tokens = 0;    // of these, those that were not the same

  Histogram first_token;     // nanoseconds, from the begin of a text
  Histogram between_tokens;  // nanoseconds, between two messages with tokens of one text
  Histogram text;            // nanoseconds, of a whole text that ended with OK

  double tokens_per_s() const { return PerSecond(tokens); }
};

// Blocks until the run has ended. `requests`, at least one, are sent in turn; each has one sample.
// kInvalidArgument: an option is out of range, or the address is not on this machine (see
// ResolveLoopback). kUnavailable: no connection; or the first run of a text, for `check`, failed
// with the error that is returned. Texts that fail are part of the result.
absl::StatusOr<GenerateLoadResult> RunGenerateLoad(
    const GenerateLoadOptions& options, const std::vector<v1::GenerateRequest>& requests);

}  // namespace sru::bench

#endif  // SRU_BENCH_GENERATE_LOAD_H_
