// The load generator: sends prepared requests to a server and measures the answers.
//
// Closed loop (rate = 0): `in_flight` calls are always on their way, a call is sent when another
// one comes back, and latency counts from there. It finds the highest throughput, but hides stalls:
// while the server stands still, nothing is sent.
//
// Open loop (rate > 0): calls are sent at Poisson arrivals, whatever the server does, and latency
// counts from the time at which a call was meant to be sent. A stall, of the server or of this
// client, is thus seen by every call that it delayed.
//
// It shares the machine with the server it measures, so it is made to be cheap: requests are
// serialised once, answers are not parsed, and each thread drives its own connections (see
// H2Connection), its own arrivals and its own histograms.
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

// What has happened so far, all calls since the start, warm-up included.
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
  // Path of a unary method.
  std::string method;

  int in_flight = 64;  // closed loop only
  double rate = 0;     // calls per second; 0 = closed loop
  // Open loop: a call that would be one more than this is not sent, but counted as `unsent`.
  int max_outstanding = 20000;
  uint64_t seed = 1;

  // Calls of the warm-up are sent but not counted.
  absl::Duration warmup = absl::Seconds(1);
  // Ends with whichever of these two comes first; 0 calls = no bound.
  absl::Duration duration = absl::Seconds(10);
  int64_t calls = 0;

  // Of each call, from the time at which it is meant to be sent; InfiniteDuration = none.
  absl::Duration deadline = absl::Seconds(10);

  int connections = 2;
  int threads = 1;  // at most one per connection

  // Open loop: a thread looks at most so often whether calls are due, and sends them together. To
  // wake for each call costs more than to send it, and on a machine that is shared with the server
  // that time is the server's. Latency counts from the intended time all the same.
  absl::Duration send_interval = absl::ZeroDuration();

  // Called about once per second from another thread; may be null.
  std::function<void(const Progress&)> on_progress;
  // Set to true to end early with what was measured; may be null.
  const std::atomic<bool>* stop = nullptr;
};

struct LoadResult {
  double elapsed_s = 0;  // from the end of the warm-up to the last answer
  int64_t calls = 0;     // sent and answered, one way or the other
  int64_t ok = 0;
  int64_t good = 0;  // OK, and within the deadline by this client's own clock
  // Arrivals that were not sent: max_outstanding calls were on their way, or the deadline passed
  // before the server allowed another concurrent call or before this client got to it.
  int64_t unsent = 0;
  // The run ended early, because no connection was left.
  bool connection_lost = false;

  Histogram latency;  // nanoseconds, of the calls that were OK
  Histogram refused;  // RESOURCE_EXHAUSTED and UNAVAILABLE
  Histogram failed;   // all other codes

  std::map<absl::StatusCode, int64_t> codes;            // calls by code, OK included
  std::map<absl::StatusCode, std::string> first_error;  // one message per code

  double throughput() const { return elapsed_s > 0 ? ok / elapsed_s : 0; }
  double goodput() const { return elapsed_s > 0 ? good / elapsed_s : 0; }
};

// Blocks until the last answer. `requests` are serialised messages, sent in turn; at least one.
// kInvalidArgument: an option is out of range, or the address is not on this machine (see
// ResolveLoopback). kUnavailable: no connection. Failed calls are part of the result.
absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options,
                                   const std::vector<std::string>& requests);

}  // namespace sru::bench

#endif  // SRU_BENCH_LOAD_GENERATOR_H_
