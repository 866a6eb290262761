// The load generator: sends prepared requests to a server and measures the answers.
//
// Closed loop (rate = 0): `in_flight` calls are always on their way; a call is sent when another
// one comes back, and its latency counts from then. This finds the highest throughput but hides
// stalls: while the server stalls, nothing is sent.
//
// Open loop (rate > 0): calls are sent at Poisson arrivals, regardless of what the server does, and
// latency counts from the time at which a call was meant to be sent. A stall, of the server or of
// this client, therefore shows in the latency of every call that it delayed.
//
// The load generator shares the machine with the server that it measures, so it is built to be
// cheap: requests are serialized once, answers are not read, and each
// thread drives its own connections (see H2Connection), its own arrivals and its own histograms.
#ifndef SRU_BENCH_LOAD_GENERATOR_H_
#define SRU_BENCH_LOAD_GENERATOR_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/histogram.h"
#include "bench/run.h"

namespace sru::bench {

struct LoadOptions : RunOptions {
  // The path of a unary method.
  std::string method;

  int in_flight = 64;  // closed loop only
  // The run ends with this many calls or at the end of its duration; 0 = no bound.
  int64_t calls = 0;
  int threads = 1;  // at most one per connection

  // Open loop: the shortest time between two checks of a thread whether calls are due; it sends all
  // that are due together. Waking for each call costs more than sending it, and on a machine that
  // is shared with the server that time is the server's. Latency still counts from the intended
  // time.
  absl::Duration send_interval = absl::ZeroDuration();
};

// `elapsed_s` ends with the last answer. Not sent are also calls whose deadline passed before the
// server allowed another concurrent call, or before this client came round to sending them.
struct LoadResult : RunResult {
  int64_t good = 0;  // OK, and within the deadline by this client's own clock
  // The run ended early because no connection was left.
  bool connection_lost = false;

  Histogram latency;  // nanoseconds, of the calls that were OK
  Histogram failed;   // nanoseconds, of calls that ended with a code other than OK, refusals apart

  double throughput() const { return PerSecond(ok); }
  double goodput() const { return PerSecond(good); }
};

// Blocks until the last answer. `requests` are serialized messages, at least one, which are sent in
// turn. kInvalidArgument: an option is out of range, or the address is not on this machine (see
// ResolveLoopback). kUnavailable: no connection. Calls that fail are part of the result.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options,
                                   const std::vector<std::string>& requests);

}  // namespace sru::bench

#endif  // SRU_BENCH_LOAD_GENERATOR_H_
