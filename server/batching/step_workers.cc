#include "server/batching/step_workers.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/base/crash_report.h"

namespace sru::server::batching {
namespace {

// Before the end of a drain, sequences are told to stop, so that what they leave is out in time: a
// tenth of the time that is left, at most this much.
constexpr absl::Duration kSuspendTime = absl::Seconds(1);

// Of the newest sequence, in how many steps they take.
constexpr double kNewestWeight = 1.0 / 16;

}  // namespace

absl::StatusOr<std::unique_ptr<StepWorkers>> StepWorkers::Create(
    std::vector<std::unique_ptr<StepRunner>> runners, const StepWorkersOptions& options,
    const Clock* clock, StepObserver* observer) {
  SchedulerOptions scheduler_options = options.scheduler;
  scheduler_options.workers.assign(options.num_devices, 0);
  for (const int device : DevicesOf(runners)) ++scheduler_options.workers[device];
  auto scheduler = SequenceScheduler::Create(scheduler_options, clock);
  if (!scheduler.ok()) return scheduler.status();
  return std::unique_ptr<StepWorkers>(
      new StepWorkers(std::move(runners), *std::move(scheduler), options, clock, observer));
}

StepWorkers::StepWorkers(std::vector<std::unique_ptr<StepRunner>> runners,
                         std::unique_ptr<SequenceScheduler> scheduler,
                         const StepWorkersOptions& options, const Clock* clock,
                         StepObserver* observer)
    : Workers(options, DevicesOf(runners), kSuspendTime, clock),
      result_at_end_(options.scheduler.result_at_end),
      drain_status_(options.drain_status),
      runners_(std::move(runners)),
      scheduler_(std::move(scheduler)),
      observer_(observer) {}

void StepWorkers::Stop() {
  scheduler_->Suspend(drain_status_);
  Join();
}

absl::StatusOr<std::vector<SequenceHandle>> StepWorkers::Submit(
    std::vector<SequenceRequest>&& requests) {
  if (result_at_end_) {
    const MutexLock lock(&ratio_mutex_);
    for (SequenceRequest& request : requests) {
      const double steps =
          std::ceil(steps_per_row_ * static_cast<double>(request.sequence->need().rows));
      request.least_steps =
          static_cast<int>(std::clamp(steps, 1.0, std::max(1.0, 1.0 * request.least_steps)));
    }
  }
  return scheduler_->Submit(std::move(requests));
}

bool StepWorkers::Work(size_t worker, CoreSeats::Seat* seat, kernels::Turn* turn) {
  StepRunner& runner = *runners_[worker];
  std::unique_ptr<Step> step;
  if (seat->is_taken()) step = scheduler_->TryTakeStep(runner.device());
  if (step == nullptr) {
    seat->Release();
    step = scheduler_->TakeStep(runner.device());
  }
  if (step == nullptr) return false;
  turn->Start();
  const crash::InFlight in_flight("step", model_name());
  absl::Time start = clock().Now();
  absl::Status status;
  {
    seat->Take(step->parts());
    const kernels::TurnEnd::Scope turns(seat);
    status = runner.Run(step->shares());
  }
  const absl::Time now = clock().Now();
  const absl::Duration waited = seat->TakeWaited();
  step->StartLater(waited);
  start += waited;
  if (absl::IsUnavailable(status)) ReportLost(runner.device(), status);
  Count(*step, status, start, now);
  scheduler_->FinishStep(std::move(step), status, now - start);
  return true;
}

void StepWorkers::Count(Step& step, const absl::Status& status, absl::Time start, absl::Time end) {
  StepTimes times{steps_.fetch_add(1, std::memory_order_relaxed), absl::Time(), start, end,
                  static_cast<int>(step.shares().size()),         step.rows()};
  int64_t fed_rows = step.fed_rows();
  for (size_t i = 0; i < step.shares().size(); ++i) {
    const StepShare& share = step.shares()[i];
    fed_rows -= share.unused;
    ScheduledSequence& sequence = *step.sequences()[i];
    times.arrival = sequence.arrival;
    const StepProgress progress = share.sequence->OnStep(times);
    if (progress.fed_rows > 0) {
      const double ratio = static_cast<double>(progress.steps) / progress.fed_rows;
      const MutexLock lock(&ratio_mutex_);
      steps_per_row_ += (steps_per_row_ == 0 ? 1 : kNewestWeight) * (ratio - steps_per_row_);
    }
    if (progress.new_tokens == 0) continue;
    new_tokens_.fetch_add(progress.new_tokens, std::memory_order_relaxed);
    const absl::Time last = std::exchange(sequence.last_tokens, end);
    if (observer_ == nullptr || result_at_end_) continue;
    if (last == absl::InfinitePast()) {
      observer_->OnFirstToken(end - sequence.arrival);
    } else {
      observer_->OnNextToken(end - last);
    }
  }
  if (status.ok()) fed_rows_.fetch_add(fed_rows, std::memory_order_relaxed);
  if (observer_ == nullptr) return;
  observer_->OnStep(static_cast<int>(step.shares().size()), end - start);
}

std::optional<int64_t> StepWorkers::WaitsForReadersAt() const {
  const StepStats now = stats();
  if (now.running + now.waiting > 0 || now.paused == 0) return std::nullopt;
  return now.steps;
}

StepStats StepWorkers::stats() const {
  StepStats stats = scheduler_->stats();
  stats.steps = steps_.load(std::memory_order_relaxed);
  stats.fed_rows = fed_rows_.load(std::memory_order_relaxed);
  stats.new_tokens = new_tokens_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace sru::server::batching
