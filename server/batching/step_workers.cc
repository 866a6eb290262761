#include "server/batching/step_workers.h"

#include <utility>

namespace sru::server::batching {
namespace {

// Before the end of a drain, sequences are told to stop, so that what they leave is out in time: a tenth
// of the time that is left, at most this much.
constexpr absl::Duration kSuspendTime = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::unique_ptr<StepWorkers>> StepWorkers::Create(
    std::vector<std::unique_ptr<StepRunner>> runners, const StepWorkersOptions& options,
    const Clock* clock, StepListener* listener) {
  SchedulerOptions scheduler_options = options.scheduler;
  scheduler_options.workers.assign(options.num_devices, 0);
  for (const int device : DevicesOf(runners)) ++scheduler_options.workers[device];
  auto scheduler = SequenceScheduler::Create(scheduler_options, clock);
  if (!scheduler.ok()) return scheduler.status();
  return std::unique_ptr<StepWorkers>(
      new StepWorkers(std::move(runners), *std::move(scheduler), options, clock, listener));
}

StepWorkers::StepWorkers(std::vector<std::unique_ptr<StepRunner>> runners,
                         std::unique_ptr<SequenceScheduler> scheduler,
                         const StepWorkersOptions& options, const Clock* clock,
                         StepListener* listener)
    : Workers(options, DevicesOf(runners), kSuspendTime, clock),
      drain_status_(options.drain_status),
      runners_(std::move(runners)),
      scheduler_(std::move(scheduler)),
      listener_(listener) {}

void StepWorkers::Stop() {
  scheduler_->Suspend(drain_status_);
  Join();
}

bool StepWorkers::Work(size_t worker, kernels::Turn* turn) {
  StepRunner& runner = *runners_[worker];
  std::unique_ptr<Step> step = scheduler_->TakeStep(runner.device());
  if (step == nullptr) return false;
  turn->Start();
  const absl::Time start = clock().Now();
  const absl::Status status = runner.Run(step->shares());
  const absl::Time now = clock().Now();
  if (absl::IsUnavailable(status)) ReportLost(runner.device(), status);
  listener_->OnStep(*step, status, start, now);
  scheduler_->FinishStep(std::move(step), status, now - start);
  return true;
}

}  // namespace sru::server::batching
