#include "server/batching/step_source.h"

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

StepSource::StepSource(std::vector<std::unique_ptr<StepRunner>> runners,
                       std::unique_ptr<SequenceScheduler> scheduler, absl::Status drain_status,
                       const WorkSourceOptions& options, WorkerPool* pool, const Clock* clock,
                       ComputeObserver* observer)
    : WorkSource(options, pool, PlacesOf(runners, pool->num_devices()), kSuspendTime, clock),
      drain_status_(std::move(drain_status)),
      runners_(std::move(runners)),
      scheduler_(std::move(scheduler)),
      observer_(observer),
      claims_(runners_) {
  scheduler_->OnWork([this] { Notify(); });
}

void StepSource::Stop() {
  scheduler_->Suspend(drain_status_);
  Leave();
}

absl::StatusOr<std::vector<SequenceHandle>> StepSource::Submit(
    std::vector<SequenceRequest>&& requests) {
  if (scheduler_->result_at_end()) {
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
  return claims_.CanClaim(device, runners_.size()) ? next : NextWork();
}

bool StepSource::RunNext(WorkerPool::Job* job) {
  const size_t index = claims_.Claim(job->device(), 0, runners_.size());
  if (index == runners_.size()) return false;
  StepRunner& runner = *runners_[index];
  std::unique_ptr<Step> step = scheduler_->TryTakeStep(job->device());
  if (step == nullptr) {
    Free(index);
    return false;
  }
  const crash::InFlight in_flight("step", model_name());
  const absl::Time start = clock().Now();
  job->Begin(step->parts, this);
  absl::Status status;
  {
    const kernels::TurnEnd::Scope turns(job);
    status = runner.Run(step->shares);
  }
  Free(index);
  const absl::Time now = clock().Now();
  const absl::Time later_start = start + job->interrupted();
  step->start += job->interrupted();
  if (absl::IsUnavailable(status)) ReportLost(job->device(), status);
  Count(*step, status, later_start, now);
  scheduler_->FinishStep(std::move(step), status, now - later_start);
  return true;
}

void StepSource::Count(Step& step, const absl::Status& status, absl::Time start, absl::Time end) {
  StepTimes times{steps_.fetch_add(1, std::memory_order_relaxed), absl::Time(), start, end,
                  static_cast<int>(step.shares.size()),           step.rows};
  int64_t fed_rows = step.fed_rows;
  for (size_t i = 0; i < step.shares.size(); ++i) {
    const StepShare& share = step.shares[i];
    fed_rows -= share.unused;
    ScheduledSequence& sequence = *step.sequences[i];
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
    if (observer_ == nullptr || scheduler_->result_at_end()) continue;
    if (last == absl::InfinitePast()) {
      observer_->OnFirstToken(end - sequence.arrival);
    } else {
      observer_->OnNextToken(end - last);
    }
  }
  if (status.ok()) fed_rows_.fetch_add(fed_rows, std::memory_order_relaxed);
  if (observer_ == nullptr) return;
  observer_->OnStep(static_cast<int>(step.shares.size()), end - start);
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
