// SimulatedServer: sru_server in a simulation. The queue, its order, its bounds, admission and refusals are
// those of the real batcher (server/batching/batcher.h), under the simulation's clock; around it are the
// threads of a server, which share its cores:
//
//   connection   reads what has come on a connection, call by call, and submits it. What comes meanwhile is
//                its next turn. After a refusal it leaves the next data to gather (--read_pause_us). The client
//                keeps calls back while --max_concurrent_streams are open on it.
//   worker       takes a batch, computes it for as long as the machine's speed says, writes the answers.
//
// Half of what a call costs outside of its batch is paid by the connection, half by the worker that answers
// it; a refused call costs the whole of it at once, and nothing for its sequences. Not thread-safe.
#ifndef SRU_BENCH_CAPACITY_SERVER_H_
#define SRU_BENCH_CAPACITY_SERVER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/capacity_calls.h"
#include "bench/capacity_cores.h"
#include "bench/capacity_events.h"
#include "bench/capacity_speed.h"
#include "server/batching/batcher.h"

namespace sru::bench {

// Names and defaults are those of the server's flags.
struct SimulatedServerOptions {
  server::BatcherOptions batcher;  // num_workers is set from `instances`
  int instances = 0;               // 0 = one per core
  double compute_turn_us = 200;
  double read_pause_us = 2000;
  int max_concurrent_streams = 512;
  int connections = 2;  // that calls come on
};

class SimulatedServer {
 public:
  class Observer {
   public:
    virtual ~Observer() = default;
    // Called once for each call that arrived, also from within Kill().
    virtual void OnAnswer(SimulatedServer* server, SimulatedCall* call, absl::StatusCode code) = 0;
  };

  // What it has done since its start.
  struct Counts {
    int64_t batches = 0;
    int64_t batch_sequences = 0;
    int64_t batch_tokens = 0;
  };

  // Of the options, only the flags of the batcher are checked here. All pointers must outlive it.
  static absl::StatusOr<std::unique_ptr<SimulatedServer>> Create(
      const SimulatedServerOptions& options, const MachineSpeed* speed, const CallMix* mix,
      uint64_t seed, EventQueue* events, Observer* observer);
  ~SimulatedServer();

  // A call has reached the machine, on connection `call->connection`. The call must live until
  // OnAnswer().
  void Arrive(SimulatedCall* call);

  // The process is gone: all that is in it is answered with kUnavailable, at once.
  void Kill();
  // From now on calls are refused; those that were accepted are still answered.
  void Close();

  // Calls that have arrived, or that their client keeps back, and have no answer yet.
  int64_t in_flight() const { return in_flight_; }
  int64_t queued_tokens() const { return batcher_->stats().queued_tokens; }
  const Counts& counts() const { return counts_; }
  // For other threads on the same machine, and how busy it is.
  Cores& cores() { return cores_; }

 private:
  class Connection;
  class Worker;

  SimulatedServer(const SimulatedServerOptions& options, const MachineSpeed* speed,
                  const CallMix* mix, uint64_t seed, EventQueue* events, Observer* observer,
                  std::unique_ptr<server::Batcher> batcher, std::unique_ptr<SimulatedClock> clock);

  // What Submit() says.
  absl::StatusCode Submit(SimulatedCall* call);
  // Refuses a call before it is parsed; kOk lets it pass.
  absl::StatusCode CheckAdmission(const SimulatedCall& call);
  void Answer(SimulatedCall* call, absl::StatusCode code);
  // For a call that no connection has open.
  void EndUnsent(SimulatedCall* call, absl::StatusCode code);
  Connection& ConnectionOf(const SimulatedCall& call);
  // Wakes one more worker if the waiting work needs it.
  void WakeWorker();

  const SimulatedServerOptions options_;
  const MachineSpeed* const speed_;
  const CallMix* const mix_;
  EventQueue* const events_;
  Observer* const observer_;
  const std::unique_ptr<SimulatedClock> clock_;
  const std::unique_ptr<server::Batcher> batcher_;
  Cores cores_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  int woken_ = 0;  // workers that do not run yet
  int64_t in_flight_ = 0;
  int64_t open_ = 0;  // of these, those that are not kept back
  bool dead_ = false;
  Counts counts_;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_SERVER_H_
