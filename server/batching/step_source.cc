#include "server/batching/step_source.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "server/base/crash_report.h"

namespace sru::server::batching {
namespace {

// Before the end of a drain, sequences are told to stop, so that what they leave is out in time: a
// tenth of the time that is left, at most this much.
constexpr absl::Duration kSuspendTime = absl::Seconds(1);

// Of the newest sequence, in how many steps they take.
constexpr double kNewestWeight = 1.0 / 16;

}  // namespace

absl::StatusOr<std::unique_ptr<StepSource>> StepSource::Create(
    std::vector<std::unique_ptr<StepRunner>> runners, const StepSourceOptions& options,
    WorkerPool* pool, const Clock* clock, StepObserver* observer) {
  SchedulerOptions scheduler_options = options.scheduler;
  scheduler_options.workers = PlacesOf(runners, pool->num_devices());
  SRU_ASSIGN_OR_RETURN(std::unique_ptr<SequenceScheduler> scheduler,
                       SequenceScheduler::Create(scheduler_options, clock));
  return std::unique_ptr<StepSource>(
      new StepSource(std::move(runners), std::move(scheduler), options, pool, clock, observer));
}

StepSource::StepSource(std::vector<std::unique_ptr<StepRunner>> runners,
                       std::unique_ptr<SequenceScheduler> scheduler,
                       const StepSourceOptions& options, WorkerPool* pool, const Clock* clock,
                       StepObserver* observer)
    : WorkSource(options, pool, PlacesOf(runners, pool->num_devices()), kSuspendTime, clock),
      result_at_end_(options.scheduler.result_at_end),
      drain_status_(options.drain_status),
      runners_(std::move(runners)),
      scheduler_(std::move(scheduler)),
      observer_(observer),
      busy_(runners_.size()) {
  scheduler_->OnWork([this] { Notify(); });
}

void StepSource::Stop() {
  scheduler_->Suspend(drain_status_);
  Leave();
}

absl::StatusOr<std::vector<SequenceHandle>> StepSource::Submit(
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

NextWork StepSource::Next(int device, absl::Time now, bool /*nested*/) {
  const NextWork next = scheduler_->Next(device, now);
  if (next.at == absl::InfiniteFuture()) return next;
  const MutexLock lock(&usage_mutex_);
  if (FindIdle(device) < runners_.size()) return next;
  was_short_ = true;
  return NextWork();
}

size_t StepSource::FindIdle(int device) const {
  size_t i = 0;
  while (i < runners_.size() && (runners_[i]->device() != device || busy_[i] != 0)) ++i;
  return i;
}

void StepSource::Free(size_t runner) {
  bool was_short = false;
  {
    const MutexLock lock(&usage_mutex_);
    busy_[runner] = 0;
    was_short = std::exchange(was_short_, false);
  }
  if (was_short) Notify();
}

bool StepSource::RunNext(WorkerPool::Job* job) {
  size_t index = 0;
  {
    const MutexLock lock(&usage_mutex_);
    index = FindIdle(job->device());
    if (index == runners_.size()) return false;
    busy_[index] = 1;
  }
  StepRunner& runner = *runners_[index];
  std::unique_ptr<Step> step = scheduler_->TryTakeStep(job->device());
  if (step == nullptr) {
    Free(index);
    return false;
  }
  const crash::InFlight in_flight("step", model_name());
  const absl::Time start = clock().Now();
  job->Begin(step->parts(), this);
  absl::Status status;
  {
    const kernels::TurnEnd::Scope turns(job);
    status = runner.Run(step->shares());
  }
  Free(index);
  const absl::Time now = clock().Now();
  const absl::Time later_start = start + job->interrupted();
  step->StartLater(job->interrupted());
  if (absl::IsUnavailable(status)) ReportLost(job->device(), status);
  Count(*step, status, later_start, now);
  scheduler_->FinishStep(std::move(step), status, now - later_start);
  return true;
}

void StepSource::Count(Step& step, const absl::Status& status, absl::Time start, absl::Time end) {
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

std::optional<int64_t> StepSource::WaitsForReadersAt() const {
  const StepStats now = stats();
  if (now.running + now.waiting > 0 || now.paused == 0) return std::nullopt;
  return now.steps;
}

StepStats StepSource::stats() const {
  StepStats stats = scheduler_->stats();
  stats.steps = steps_.load(std::memory_order_relaxed);
  stats.fed_rows = fed_rows_.load(std::memory_order_relaxed);
  stats.new_tokens = new_tokens_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace sru::server::batching
