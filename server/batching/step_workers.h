// StepWorkers: the threads that run the steps of a SequenceScheduler. Each takes a step, runs it and hands
// it back.
//
// A device that fails for good is taken out of service with all of its workers; its sequences are computed again elsewhere.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_STEP_WORKERS_H_
#define SRU_SERVER_BATCHING_STEP_WORKERS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/batching/sequence_scheduler.h"
#include "server/batching/step_runner.h"

namespace sru::server::batching {

struct StepWorkersOptions {
  std::string name = "steps";       // of the model, for the log
  std::string workers = "workers";  // what the log calls them
  int num_devices = 1;
  SchedulerOptions scheduler;  // its `workers` follow from the runners
  bool pin_cores = false;
  absl::Duration compute_turn = absl::Microseconds(200);
  // With what sequences end that the end of a drain cuts off.
  absl::Status drain_status = absl::UnavailableError("the server is shutting down");
  // Told by a worker whose device has failed, possibly several times; must call LoseDevice(). May be
  // empty.
  std::function<void(int device, const absl::Status& error)> on_device_lost;
};

// Is told of steps, from the workers' threads.
class StepListener {
 public:
  virtual ~StepListener() = default;

  // A step has run from `start` until `end`, or failed with `status`. It has not been handed back: its
  // sequences are in no other step.
  virtual void OnStep(Step& step, const absl::Status& status, absl::Time start, absl::Time end) = 0;
};

class StepWorkers {
 public:
  // One worker per runner. `clock` and `listener` must outlive the workers. kInvalidArgument names the
  // option that is out of range.
  static absl::StatusOr<std::unique_ptr<StepWorkers>> Create(
      std::vector<std::unique_ptr<StepRunner>> runners, const StepWorkersOptions& options,
      const Clock* clock, StepListener* listener);
  // Stops them.
  virtual ~StepWorkers() = default;

  virtual SequenceScheduler& scheduler() = 0;

  // Starts the workers and returns once each has warmed up. Call it once; before it nothing may be
  // submitted.
  virtual absl::Status Start() = 0;

  // The device has failed. Does nothing if that is known.
  virtual void LoseDevice(int device, const absl::Status& error) = 0;

  // Refuses new sequences and waits until all have ended. A little before `deadline` those that are left
  // are told to stop (SequenceScheduler::Suspend()). Returns true if none was.
  virtual bool Drain(absl::Time deadline) = 0;

  // Ends every sequence as Drain() does at its deadline, and joins the workers.
  virtual void Stop() = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEP_WORKERS_H_
