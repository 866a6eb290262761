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

namespace sru::bench {

// What has happened so far: all calls since the start, including the warm-up.
struct Progress {
  double elapsed_s = 0;
  bool warming_up = false;
  int64_t sent = 0;
  int64_t ok = 0;
  int64_t not_ok = 0;
  int64_t in_flight = 0;
};

struct LoadOptions {
  std::string address;
  // The path of a unary method.
  std::string method;
  std::string token;  // that calls show; empty = none

  int in_flight = 64;  // closed loop only
  double rate = 0;     // calls per second; 0 = closed loop
  // Open loop: most calls on their way; a call beyond that is not sent, but counted as `unsent`.
  int max_outstanding = 20000;
  uint64_t seed = 1;

  // Calls of the warm-up are sent but not counted.
  absl::Duration warmup = absl::Seconds(1);
  // The run ends with whichever of these two comes first; 0 calls = no bound.
  absl::Duration duration = absl::Seconds(10);
  int64_t calls = 0;

  // The deadline of each call, from the time at which it is meant to be sent; InfiniteDuration =
  // none.
  absl::Duration deadline = absl::Seconds(10);

  int connections = 2;
  int threads = 1;  // at most one per connection

  // Open loop: the shortest time between two checks of a thread whether calls are due; it sends all
  // that are due together. Waking for each call costs more than sending it, and on a machine that
  // is shared with the server that time is the server's. Latency still counts from the intended
  // time.
  absl::Duration send_interval = absl::ZeroDuration();

  // Called about once per second, from another thread; may be null.
  std::function<void(const Progress&)> on_progress;
  // Set it to true to end early with what was measured so far; may be null.
  const std::atomic<bool>* stop = nullptr;
};

struct LoadResult {
  double elapsed_s = 0;  // from the end of the warm-up to the last answer
  int64_t calls = 0;     // sent and answered, with any code
  int64_t ok = 0;
  int64_t good = 0;  // OK, and within the deadline by this client's own clock
  // Arrivals that were not sent: max_outstanding calls were on their way, or the deadline passed
  // before the server allowed another concurrent call or before this client came round to sending
  // it.
  int64_t unsent = 0;
  // The run ended early because no connection was left.
  bool connection_lost = false;

  Histogram latency;  // nanoseconds, of the calls that were OK
  Histogram refused;  // likewise, of RESOURCE_EXHAUSTED and UNAVAILABLE
  Histogram failed;   // likewise, of all other codes

  std::map<absl::StatusCode, int64_t> codes;            // calls by code, OK included
  std::map<absl::StatusCode, std::string> first_error;  // one message per code

  double throughput() const { return elapsed_s > 0 ? ok / elapsed_s : 0; }
  double goodput() const { return elapsed_s > 0 ? good / elapsed_s : 0; }
};

// Blocks until the last answer. `requests` are serialized messages, at least one, which are sent in
// turn. kInvalidArgument: an option is out of range, or the address is not on this machine (see
// ResolveLoopback). kUnavailable: no connection. Calls that fail are part of the result.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options,
                                   const std::vector<std::string>& requests);

}  // namespace sru::bench

#endif  // SRU_BENCH_LOAD_GENERATOR_H_
