#include "server/batching/batch_source.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "server/base/cores.h"
#include "server/base/crash_report.h"
#include "server/base/retry.h"
#include "server/base/turn_work.h"

namespace sru::server::batching {
namespace {

constexpr int kMaxRuns = 2;  // of one batch

using Failures = std::vector<std::pair<size_t, absl::Status>>;  // of sequences, by index

// The sequences [begin, end) have run together and ended with `status`. Runs them again in smaller
// parts where that may help. Returns OK and lists the sequences that failed by themselves, or
// returns the error of all of them: kUnavailable also if the device is lost meanwhile.
absl::Status RunAgain(BatchRunner& runner, const std::vector<const SequenceTask*>& all,
                      size_t begin, size_t end, const absl::Status& status, Failures* failures) {
  const size_t count = end - begin;
  const bool is_too_large = absl::IsResourceExhausted(status);
  // Others may hold the memory of states.
  if (count == 1 && is_too_large) return RetryAfter(status, kMemoryRetryAfter);
  if (count == 1 || !(is_too_large || absl::IsInvalidArgument(status))) return status;
  const size_t step = is_too_large ? (count + 1) / 2 : 1;
  std::vector<const SequenceTask*> part;
  for (size_t i = begin; i < end; i += step) {
    const size_t part_end = std::min(i + step, end);
    part.assign(all.begin() + i, all.begin() + part_end);
    const absl::Status ended = RunAgain(runner, all, i, part_end, runner.Run(part), failures);
    if (absl::IsUnavailable(ended)) return ended;
    if (ended.ok()) continue;
    for (size_t failed = i; failed < part_end; ++failed) failures->emplace_back(failed, ended);
  }
  return absl::OkStatus();
}

std::vector<std::unique_ptr<BatchRunner>> WithNested(
    std::vector<std::unique_ptr<BatchRunner>> runners, std::unique_ptr<BatchRunner> nested) {
  if (nested != nullptr) runners.push_back(std::move(nested));
  return runners;
}

}  // namespace

// Runs batches for the loops that have submitted requests. May outlive the source.
class BatchSource::LoopRuns final : public TurnWork {
 public:
  explicit LoopRuns(BatchSource* source) : source_(source) {}

  // A call of somebody who has had little must not wait until the loop has looked at all that has
  // come while every worker computes for others.
  void RunUrgent() override {
    Run([](BatchSource* source) {
      for (int device = 0; device < source->pool().num_devices(); ++device) {
        if (source->pool().has_idle_worker(device)) return;
      }
      if (!source->InterruptHere()) source->Notify();
    });
  }
  void RunInTurn(bool in_time) override {
    Run([in_time](BatchSource* source) { source->RunHereOrWake(in_time); });
  }

  // Returns when no loop runs anything, nor will. Not on a loop's own turn.
  void Stop() {
    const MutexLock lock(&mutex_);
    while (running_ > 0) ended_.Wait(&mutex_);
    source_ = nullptr;
  }

 private:
  template <typename Job>
  void Run(const Job& job) {
    BatchSource* source = nullptr;
    {
      const MutexLock lock(&mutex_);
      if (source_ == nullptr) return;
      source = source_;
      ++running_;
    }
    job(source);
    const MutexLock lock(&mutex_);
    if (--running_ == 0) ended_.SignalAll();
  }

  Mutex mutex_;
  CondVar ended_;
  BatchSource* source_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct BatchSource::Outcome {
  absl::Status batch;   // the run of the batch as a whole
  absl::Status shared;  // what its requests end with, except for `failures`
  Failures failures;
};

BatchSource::BatchSource(std::vector<std::unique_ptr<BatchRunner>> runners,
                         std::unique_ptr<Batcher> batcher, const WorkSourceOptions& options,
                         WorkerPool* pool, const Clock* clock, ComputeObserver* observer,
                         NestedRunner nested)
    : WorkSource(options, pool, PlacesOf(runners, pool->num_devices()),
                 /*cut_off_time=*/absl::ZeroDuration(), clock),
      runners_(WithNested(std::move(runners), std::move(nested.runner))),
      num_places_(static_cast<size_t>(in_service())),
      most_nested_(nested.most),
      batcher_(std::move(batcher)),
      observer_(observer),
      claims_(runners_),
      loop_runs_(std::make_shared<LoopRuns>(this)) {
  batcher_->SetNumWorkers(static_cast<int>(num_places_));
  batcher_->OnWork([this] { Notify(); },
                   [runs = loop_runs_] {
                     TurnWorkList* const list = TurnWorkList::OfThisThread();
                     if (list != nullptr) list->Add(runs);
                     return list != nullptr;
                   });
}

void BatchSource::Stop() {
  batcher_->Close();
  Leave();
  loop_runs_->Stop();
}

void BatchSource::CutOff() {
  batcher_->Abort(absl::UnavailableError(
      "the server is shutting down and ran out of time before this request was computed"));
}

void BatchSource::OnDeviceLost(int /*device*/, const absl::Status& error) {
  if (in_service() > 0) return;
  // A second caller finds an empty queue.
  batcher_->Stop(absl::UnavailableError(absl::StrCat(
      "every device that served this model has failed, the last with: ", error.message())));
}

NextWork BatchSource::Next(int device, absl::Time now, bool nested) {
  const NextWork next = batcher_->Next(now);
  if (next.at == absl::InfiniteFuture()) return next;
  const bool fits = nested && next.tokens <= most_nested_.tokens;
  const bool can =
      !is_lost(device) && claims_.CanClaim(device, fits ? runners_.size() : num_places_);
  return can ? next : NextWork();
}

bool BatchSource::RunNext(WorkerPool::Job* job) {
  // Where it fits, nested work runs in the small memory of the runner that is there for it.
  if (job->is_nested() && RunWithin(num_places_, runners_.size(), /*strictly=*/true, job)) {
    return true;
  }
  return RunWithin(0, num_places_, /*strictly=*/false, job);
}

bool BatchSource::RunWithin(size_t begin, size_t end, bool strictly, WorkerPool::Job* job) {
  const size_t runner = Claim(job->device(), begin, end);
  if (runner == end) return false;
  std::unique_ptr<Batch> batch = job->is_nested()
                                     ? batcher_->TryTakeBatchWithin(most_nested_, strictly)
                                     : batcher_->TryTakeBatch();
  if (batch == nullptr) {
    Free(runner);
    return false;
  }
  if (batch->left_some) Notify();
  RunBatch(runner, std::move(batch), times_threads(), job);
  return true;
}

void BatchSource::RunHereOrWake(bool in_time) {
  const int devices = pool().num_devices();
  const int first = devices > 1 ? next_device_++ : 0;
  for (int i = 0; i < devices && in_time; ++i) {
    const int device = (first + i) % devices;
    const size_t runner = Claim(device, 0, num_places_);
    if (runner == num_places_) continue;
    if (!pool().TryEnter(this, device, /*interrupts=*/false)) {
      Free(runner);
      continue;
    }
    std::unique_ptr<Batch> batch = batcher_->TryTakeShortBatch();
    // The rest comes in a turn of its own: the loop writes the answers before.
    if (batch != nullptr && batch->left_some) TurnWorkList::OfThisThread()->Add(loop_runs_);
    if (RunEntered(runner, device, std::move(batch))) return;
    break;
  }
  if (!InterruptHere()) Notify();
}

bool BatchSource::InterruptHere() {
  const int device = 0;
  if (num_places_ == runners_.size() || !pool().TryEnter(this, device, /*interrupts=*/true)) {
    return false;
  }
  const size_t runner = Claim(device, num_places_, runners_.size());
  std::unique_ptr<Batch> batch;
  if (runner < runners_.size()) {
    batch = batcher_->TryTakeBatchWithin(most_nested_, /*strictly=*/true);
  }
  if (batch != nullptr && batch->left_some) Notify();
  return RunEntered(runner, device, std::move(batch));
}

bool BatchSource::RunEntered(size_t runner, int device, std::unique_ptr<Batch> batch) {
  WorkerPool::Job job(&pool(), device, /*outer=*/nullptr, /*may_be_interrupted=*/false);
  const bool ran = batch != nullptr;
  if (ran) {
    RunBatch(runner, std::move(batch), /*is_timed=*/false, &job);
  } else if (runner < runners_.size()) {
    Free(runner);
  }
  pool().Leave(this, &job);
  return ran;
}

void BatchSource::RunBatch(size_t runner, std::unique_ptr<Batch> batch, bool is_timed,
                           WorkerPool::Job* job) {
  const crash::InFlight in_flight("batch", model_name());
  const absl::Time start = clock().Now();
  const absl::Duration used_before = is_timed ? ThreadTime() : absl::ZeroDuration();
  job->Begin(batch->parts, this);
  Outcome outcome;
  int runs = 0;
  for (size_t on = runner; on < runners_.size() && runs < kMaxRuns; on = LeastLoaded()) {
    if (on != runner || runs > 0) claims_.ClaimAgain(on);
    if (is_lost(runners_[on]->device())) {  // it may have failed since it was chosen
      outcome = Outcome();
      outcome.batch = outcome.shared = absl::UnavailableError(
          absl::StrCat("device ", runners_[on]->device(), " has failed and is out of service"));
    } else {
      const kernels::TurnEnd::Scope turns(job);
      outcome = RunOn(*runners_[on], *batch);
      ++runs;
    }
    Free(on);
    if (!absl::IsUnavailable(outcome.shared)) break;
    ReportLost(runners_[on]->device(), outcome.shared);
  }
  batch->failures = std::move(outcome.failures);
  const absl::Duration interrupted = job->interrupted();
  batch->StartLater(interrupted);
  const absl::Duration compute = clock().Now() - start - interrupted;
  if (is_timed) {
    const absl::Duration used = ThreadTime() - used_before - job->interrupted_thread_time();
    batch->interrupted = std::max(absl::ZeroDuration(), compute - used);
  }
  // Reported before the answers, so that a client that has its answer finds the batch in the
  // metrics.
  if (observer_ != nullptr) {
    observer_->OnBatch(static_cast<int>(batch->sequences.size()), batch->num_tokens, compute,
                       outcome.batch);
  }
  batcher_->Finish(std::move(batch), outcome.shared, compute);
}

size_t BatchSource::LeastLoaded() {
  const std::vector<int> loads = claims_.Loads();
  size_t best = runners_.size();
  for (size_t i = 0; i < num_places_; ++i) {
    if (is_lost(runners_[i]->device())) continue;
    if (best == runners_.size() || loads[i] < loads[best]) best = i;
  }
  return best;
}

BatchSource::Outcome BatchSource::RunOn(BatchRunner& runner, const Batch& batch) {
  Outcome outcome;
  const std::vector<const SequenceTask*>& all = batch.sequences;
  outcome.batch = runner.Run(all);
  outcome.shared = RunAgain(runner, all, 0, all.size(), outcome.batch, &outcome.failures);
  if (!outcome.shared.ok()) {
    outcome.batch = outcome.shared;
    outcome.failures.clear();
  }
  return outcome;
}

}  // namespace sru::server::batching
