// RunFleet: many simulated servers behind clients that balance calls as client/service_config.json has them
// do, while things happen: a server is lost, one is drained, the load changes, the autoscaler acts.
//
//   clients     each has its own round robin over the servers that it knows to serve. Calls that met
//               UNAVAILABLE are tried again (capacity_retry.h), within the call's deadline.
//   lost        the process is killed: its calls end with UNAVAILABLE, no new ones reach it.
//   drained     SIGTERM: health says NOT_SERVING, so that clients leave it within `network_s`; for drain_delay_s
//               it takes what still comes, then it refuses. What it has accepted it answers.
//   autoscaled  capacity_autoscaler.h. A new server serves after startup_s, and each client finds it
//               at some time within discover_s after that. The newest servers are drained first.
//
// With `sample` K, one server in K is simulated, with its share of the clients and of the calls: a fleet of equal
// servers is K times what it is with a K-th of all of them.
#ifndef SRU_BENCH_CAPACITY_FLEET_H_
#define SRU_BENCH_CAPACITY_FLEET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/capacity_autoscaler.h"
#include "bench/capacity_retry.h"
#include "bench/capacity_server.h"
#include "bench/histogram.h"

namespace sru::bench {

struct FleetEvent {
  enum class Kind { kLose, kDrain, kRate };
  Kind kind = Kind::kLose;
  double at_s = 0;
  double rate = 0;  // kRate: from now on
};

// "lose@10s,drain@20s,rate=30000@30s", in the order of time. kInvalidArgument names --events.
absl::StatusOr<std::vector<FleetEvent>> ParseFleetEvents(absl::string_view text);

struct FleetOptions {
  SimulatedServerOptions server;
  CallMix mix;
  int servers = 3;
  double rate = 0;  // of all servers together
  int clients = 100;
  double network_s = 0.0001;  // one way
  double duration_s = 30;
  double warmup_s = 2;  // before, not counted
  std::vector<FleetEvent> events;
  RetryOptions retry;
  double drain_delay_s = 5;
  std::optional<AutoscalerOptions> autoscaler;
  double startup_s = 20;
  double discover_s = 0;
  int sample = 1;
  int windows = 30;  // of the time line
  uint64_t seed = 1;
};

// What became of the calls that were due in a stretch of time.
struct FleetCounts {
  std::string name;  // of a phase: the event that it begins with
  double from_s = 0;
  double to_s = 0;
  int64_t calls = 0;
  int64_t ok = 0;
  int64_t refused = 0;  // RESOURCE_EXHAUSTED
  int64_t late = 0;     // DEADLINE_EXCEEDED
  int64_t lost = 0;     // UNAVAILABLE in the end
  int64_t retried = 0;  // had more than one attempt
  Histogram latency;    // nanoseconds, of the calls that were OK
  // At the end of the stretch.
  int servers = 0;          // that serve
  double queue_tokens = 0;  // of each of them, in the mean
  double busy = 0;          // share of their cores' time in the stretch
};

struct FleetResult {
  std::vector<FleetCounts> phases;   // between the events
  std::vector<FleetCounts> windows;  // the time line
  int64_t calls = 0;
};

// kInvalidArgument names the option that is out of range.
absl::StatusOr<FleetResult> RunFleet(const MachineSpeed& speed, const FleetOptions& options);

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_FLEET_H_
