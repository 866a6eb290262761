// Shared by the loads of `sru_bench load` and `sru_bench generate`: when calls are sent,
// and what became of them. A call of generate is a text.
#ifndef SRU_BENCH_RUN_H_
#define SRU_BENCH_RUN_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "bench/histogram.h"
#include "client/connect_options.h"

namespace sru::bench {

// Counts of all calls since the start, including those of the warm-up.
struct Progress {
  double elapsed_s = 0;
  bool warming_up = false;
  int64_t done = 0;  // calls that were OK, or tokens
  int64_t ok = 0;
  int64_t not_ok = 0;
  int64_t running = 0;
};

// The server and how to reach it, and the load. `deadline` is that of each call, counted from its
// planned time of sending; InfiniteDuration = none.
struct RunOptions : client::ConnectOptions {
  // Open loop: calls per second, whatever the server does. 0 = closed loop.
  double rate = 0;
  // Open loop: most calls on their way; a call beyond that is not sent, but counted as `unsent`.
  int max_outstanding = 20000;
  uint64_t seed = 1;  // of the arrivals

  // Calls of the warm-up are sent but not counted.
  absl::Duration warmup = absl::Seconds(1);
  absl::Duration duration = absl::Seconds(10);
  int connections = 2;

  // Called about once per second, maybe from another thread; may be null.
  std::function<void(const Progress&)> on_progress;
  // Set it to true to end early with what was measured so far; may be null.
  const std::atomic<bool>* stop = nullptr;

  bool Stopped() const { return stop != nullptr && stop->load(); }
};

// The times at which independent users send, regardless of what the server does. Not thread-safe.
class PoissonArrivals {
 public:
  // `rate`: the mean number of arrivals per second, more than 0. The same seed gives the same
  // times.
  PoissonArrivals(double rate, uint64_t seed) : random_(seed), gap_s_(rate) {}

  // Nanoseconds from the start to the next arrival; never decreases.
  int64_t Next() {
    now_s_ += gap_s_(random_);
    return static_cast<int64_t>(now_s_ * 1e9);
  }

 private:
  std::mt19937_64 random_;
  std::exponential_distribution<double> gap_s_;
  double now_s_ = 0;
};

// What happened after the warm-up.
struct RunResult {
  double elapsed_s = 0;
  int64_t calls = 0;   // that ended, with any code
  int64_t ok = 0;      // that ended with OK
  int64_t unsent = 0;  // arrivals that were not sent

  Histogram refused;  // nanoseconds, of RESOURCE_EXHAUSTED and UNAVAILABLE

  std::map<absl::StatusCode, int64_t> codes;            // calls by code, OK included
  std::map<absl::StatusCode, std::string> first_error;  // one message per code

  static bool IsRefusal(absl::StatusCode code) {
    return code == absl::StatusCode::kResourceExhausted || code == absl::StatusCode::kUnavailable;
  }
  double PerSecond(int64_t count) const {
    return elapsed_s > 0 ? static_cast<double>(count) / elapsed_s : 0;
  }
};

}  // namespace sru::bench

#endif  // SRU_BENCH_RUN_H_
