// StepWorkers: the scheduler of steps of one model (sequence_scheduler.h) and the workers that run it. Each
// owns one runner, takes a step, runs it and hands it back. The sequences of a device that fails are
// computed again elsewhere.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_STEP_WORKERS_H_
#define SRU_SERVER_BATCHING_STEP_WORKERS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/batching/sequence_scheduler.h"
#include "server/batching/step_runner.h"
#include "server/batching/workers.h"

namespace sru::server::batching {

struct StepWorkersOptions : WorkersOptions {
  int num_devices = 1;
  SchedulerOptions scheduler;  // its `workers` follow from the runners
  // With what sequences end that the end of a drain cuts off.
  absl::Status drain_status = absl::UnavailableError("the server is shutting down");
};

// Is told of steps, from the workers' threads.
class StepListener {
 public:
  virtual ~StepListener() = default;

  // A step has run from `start` until `end`, or failed with `status`. It has not been handed back: its
  // sequences are in no other step.
  virtual void OnStep(Step& step, const absl::Status& status, absl::Time start, absl::Time end) = 0;
};

class StepWorkers : public Workers {
 public:
  // One worker per runner. `clock` and `listener` must outlive the workers. kInvalidArgument names the
  // option that is out of range.
  static absl::StatusOr<std::unique_ptr<StepWorkers>> Create(
      std::vector<std::unique_ptr<StepRunner>> runners, const StepWorkersOptions& options,
      const Clock* clock, StepListener* listener);
  ~StepWorkers() override { Stop(); }

  SequenceScheduler& scheduler() { return *scheduler_; }
  void Close() override { scheduler_->Close(); }
  // Ends every sequence as Drain() does at its deadline (SequenceScheduler::Suspend()), and joins the
  // workers.
  void Stop();

 private:
  StepWorkers(std::vector<std::unique_ptr<StepRunner>> runners,
              std::unique_ptr<SequenceScheduler> scheduler, const StepWorkersOptions& options,
              const Clock* clock, StepListener* listener);

  absl::Status WarmUp(size_t worker) override { return runners_[worker]->WarmUp(); }
  bool Work(size_t worker, kernels::Turn* turn) override;
  void CutOff() override { scheduler_->Suspend(drain_status_); }
  void OnDeviceLost(int device, const absl::Status& error) override {
    scheduler_->LoseDevice(device, error);
  }

  const absl::Status drain_status_;
  const std::vector<std::unique_ptr<StepRunner>> runners_;  // [worker]
  const std::unique_ptr<SequenceScheduler> scheduler_;      // thread-safe by itself
  StepListener* const listener_;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEP_WORKERS_H_
