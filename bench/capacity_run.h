// RunServer: one simulated server under load, open or closed loop as sru_bench load has them.
#ifndef SRU_BENCH_CAPACITY_RUN_H_
#define SRU_BENCH_CAPACITY_RUN_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "bench/capacity_server.h"
#include "bench/histogram.h"

namespace sru::bench {

struct ServerRunOptions {
  SimulatedServerOptions server;
  CallMix mix;
  double rate = 0;         // calls per second, Poisson arrivals; 0 = closed loop
  int in_flight = 1;       // closed loop
  int64_t calls = 100000;  // that count
  int64_t warmup = 5000;   // that come before them
  uint64_t seed = 1;
  // The load generator runs on the server's cores, as one thread that costs what MachineSpeed::client says.
  // Else calls come from elsewhere, and latency counts to the moment when the answer is written.
  bool client_on_machine = false;
};

struct ServerRunResult {
  Histogram latency;  // nanoseconds from when a call was due, of the calls that were OK
  // Of these, by priority.
  Histogram normal_latency;
  Histogram low_latency;
  int64_t calls = 0;
  int64_t ok = 0;
  int64_t good = 0;            // OK and within the deadline
  int64_t refused = 0;         // RESOURCE_EXHAUSTED
  int64_t expired = 0;         // DEADLINE_EXCEEDED
  double simulated_s = 0;      // from the first call that counts to the end of the last
  double busy = 0;             // share of all cores' time
  double batch_sequences = 0;  // in the mean
  // Microseconds of processor time a call.
  double server_us = 0;
  double client_us = 0;

  double throughput() const { return simulated_s > 0 ? static_cast<double>(ok) / simulated_s : 0; }
  double refused_share() const {
    return calls > 0 ? static_cast<double>(calls - good) / static_cast<double>(calls) : 0;
  }
};

// kInvalidArgument names the option that is out of range.
absl::StatusOr<ServerRunResult> RunServer(const MachineSpeed& speed,
                                          const ServerRunOptions& options);

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_RUN_H_
