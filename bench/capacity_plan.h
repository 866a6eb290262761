// MakePlan: how many servers, with which flags.
//
// For each choice of flags a bisection finds the highest rate at which one simulated server keeps the
// objective. The choice that takes most calls wins; where several are about as good, the one that changes
// least of the server's defaults. The servers share the calls evenly, as clients with round robin do.
#ifndef SRU_BENCH_CAPACITY_PLAN_H_
#define SRU_BENCH_CAPACITY_PLAN_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/capacity_run.h"

namespace sru::bench {

struct PlanOptions {
  CallMix mix;
  double rate = 0;               // calls per second, of all servers together
  double p99_us = 0;             // the objective
  double refused_share = 0.001;  // of the calls that may be refused or late
  int spare = 1;                 // servers that may be lost
  // What is not searched for.
  SimulatedServerOptions server;
  // The choices; each at least one.
  std::vector<int> instances;
  std::vector<int> max_batch_tokens;
  std::vector<int> max_queue_delay_us;
  int64_t calls =
      40000;  // of a simulation of the search; those of the result have four times as many
  uint64_t seed = 1;
  std::function<void(const std::string&)> on_progress;  // may be null
};

struct PlanChoice {
  int instances = 0;
  int max_batch_tokens = 0;
  int max_queue_delay_us = 0;
  double saturation = 0;  // calls per second of one server
  double rate = 0;        // the highest that keeps the objective; 0 = none
};

struct PlanRow {
  std::string what;
  int servers = 0;
  double rate = 0;  // of each server
  ServerRunResult result;
};

struct Plan {
  std::vector<PlanChoice> choices;
  size_t best = 0;
  bool possible = false;         // else the rest is empty, except for `lightest`
  int servers = 0;               // the spare ones included
  int64_t max_queue_tokens = 0;  // for the best choice
  std::vector<PlanRow> rows;     // the load as planned, without the spare servers, and too much
  ServerRunResult lightest;      // one server under a hundredth of its saturation rate
};

// kInvalidArgument names the option that is out of range.
absl::StatusOr<Plan> MakePlan(const MachineSpeed& speed, const PlanOptions& options);

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_PLAN_H_
