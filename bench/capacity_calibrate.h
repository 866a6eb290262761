// Calibrate: what calls cost a server outside of their batches, from a short run of the real one.
//
// Closed loops against a server on this machine, with one call in flight, with many, with many more, and with many
// sequences a call, give the processor time that server and load generator spend on a call, and the median latency of
// a lone call. The costs are those with which the simulation of the same loops spends and takes as much.
#ifndef SRU_BENCH_CAPACITY_CALIBRATE_H_
#define SRU_BENCH_CAPACITY_CALIBRATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bench/capacity_calls.h"
#include "bench/capacity_speed.h"

namespace sru::bench {

// A closed loop that was run.
struct LoopMeasurement {
  int in_flight = 1;
  int sequences = 1;
  // Medians over the rounds.
  double server_us = 0;  // processor time a call
  double client_us = 0;
  double p50_us = 0;
  double calls_per_s = 0;
};

struct CalibrateOptions {
  std::string server;  // the program
  // With which it serves the model: where it is, its name, its type.
  std::vector<std::string> flags;
  std::string model;
  // One of them says what the sequences are, as sru_bench load takes it; both empty: its own questions.
  std::string input;
  std::string lengths;
  absl::Duration duration = absl::Seconds(1);  // of each loop
  int rounds = 3;
};

// Starts the server and runs the loops: {1, 1}, {64, 1}, {16, 32} and {kCrowdCalls, 1}, in flight and sequences.
absl::StatusOr<std::vector<LoopMeasurement>> MeasureLoops(const CalibrateOptions& options);

// What the simulation makes of a loop.
absl::StatusOr<LoopMeasurement> SimulateLoop(const MachineSpeed& speed, const CallMix& mix,
                                             const LoopMeasurement& loop);

// Sets speed->call and speed->client. The rest of `speed` and the lengths of `mix` must be set.
// kInvalidArgument unless `loops` are those of MeasureLoops().
absl::Status FitCallCosts(const std::vector<LoopMeasurement>& loops, const CallMix& mix,
                          MachineSpeed* speed);

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_CALIBRATE_H_
