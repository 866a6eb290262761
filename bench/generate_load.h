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

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/histogram.h"
#include "sru/v1/inference.pb.h"

namespace sru::bench {

// All since the start, including the warm-up.
struct GenerateProgress {
  double elapsed_s = 0;
  bool warming_up = false;
  int64_t tokens = 0;
  int64_t ok = 0;
  int64_t not_ok = 0;
  int64_t running = 0;
};

struct GenerateLoadOptions {
  std::string address;
  std::string token;  // that calls show; empty = none

  int sessions = 1;  // closed loop only
  double rate = 0;   // texts per second; 0 = closed loop
  // Open loop: most texts on their way; one beyond that is not sent, but counted as `unsent`.
  int max_outstanding = 5000;
  uint64_t seed = 1;  // of the arrivals

  absl::Duration warmup = absl::Seconds(1);
  // The run ends with whichever of these two comes first; 0 texts = no bound. Texts that are on
  // their way then are cancelled.
  absl::Duration duration = absl::Seconds(10);
  int64_t texts = 0;
  // Of each text, from its begin; InfiniteDuration = none.
  absl::Duration deadline = absl::InfiniteDuration();

  int connections = 1;
  // First makes each text once, one after the other, and then compares every token with these.
  bool check = false;

  // Called about once per second, from the thread of RunGenerateLoad(); may be null.
  std::function<void(const GenerateProgress&)> on_progress;
  // Set it to true to end early with what was measured so far; may be null.
  const std::atomic<bool>* stop = nullptr;
};

// What happened after the warm-up.
struct GenerateLoadResult {
  double elapsed_s = 0;
  int64_t texts = 0;   // that ended, with any code
  int64_t ok = 0;      // that ended with OK
  int64_t lost = 0;    // that ended in the middle, before their deadline, without a state
  int64_t unsent = 0;  // arrivals that found max_outstanding texts on their way
  int64_t tokens = 0;
  int64_t checked_tokens = 0;  // that were compared, in the warm-up too
  int64_t wrong_tokens = 0;    // of these, those that were not the same

  Histogram first_token;     // nanoseconds, from the begin of a text
  Histogram between_tokens;  // likewise, between two messages with tokens of one text
  Histogram text;            // likewise, from the begin of a text that ended with OK to its end
  Histogram refused;         // likewise, of RESOURCE_EXHAUSTED and UNAVAILABLE before any token

  std::map<absl::StatusCode, int64_t> codes;            // texts by code, OK included
  std::map<absl::StatusCode, std::string> first_error;  // one message per code

  double tokens_per_s() const {
    return elapsed_s > 0 ? static_cast<double>(tokens) / elapsed_s : 0;
  }
};

// Blocks until the run has ended. `requests`, at least one, are sent in turn; each has one sample.
// kInvalidArgument: an option is out of range, or the address is not on this machine (see
// ResolveLoopback). kUnavailable: no connection; or the first run of a text, for `check`, failed
// with the error that is returned. Texts that fail are part of the result.
absl::StatusOr<GenerateLoadResult> RunGenerateLoad(
    const GenerateLoadOptions& options, const std::vector<v1::GenerateRequest>& requests);

}  // namespace sru::bench

#endif  // SRU_BENCH_GENERATE_LOAD_H_
