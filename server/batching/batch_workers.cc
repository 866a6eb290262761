#include "server/batching/batch_workers.h"

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "server/base/crash_report.h"
#include "server/base/retry.h"
#include "server/base/turn_work.h"

namespace sru::server::batching {
namespace {

constexpr int kMaxRuns = 2;  // of one batch

using Failures = std::vector<std::pair<size_t, absl::Status>>;  // of sequences, by index

// What the sequences from `begin` to `end` come to, which together have ended with `status`: runs
// them in smaller parts where that may help. Returns OK and the sequences that failed by
// themselves, or what ends all of them; kUnavailable also when the device is lost meanwhile.
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

}  // namespace

// Runs batches for the loops that have submitted requests. May outlive the workers.
class BatchWorkers::LoopRuns final : public TurnWork {
 public:
  explicit LoopRuns(BatchWorkers* workers) : workers_(workers) {}

  void RunUrgent() override {
    Run([](BatchWorkers* workers) { workers->RunLittleHere(/*urgent=*/true); });
  }
  void RunInTurn(bool in_time) override {
    Run([in_time](BatchWorkers* workers) { workers->RunHereOrWake(in_time); });
  }

  // Returns when no loop runs anything, nor will. Not on a loop's own turn.
  void Stop() {
    const MutexLock lock(&mutex_);
    while (running_ > 0) ended_.Wait(&mutex_);
    workers_ = nullptr;
  }

 private:
  template <typename Job>
  void Run(const Job& job) {
    BatchWorkers* workers = nullptr;
    {
      const MutexLock lock(&mutex_);
      if (workers_ == nullptr) return;
      workers = workers_;
      ++running_;
    }
    job(workers);
    const MutexLock lock(&mutex_);
    if (--running_ == 0) ended_.SignalAll();
  }

  Mutex mutex_;
  CondVar ended_;
  BatchWorkers* workers_ ABSL_GUARDED_BY(mutex_);
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
};

struct BatchWorkers::Outcome {
  bool ran = false;
  absl::Status batch;   // the run of the batch as a whole
  absl::Status shared;  // what its requests end with, except for `failures`
  Failures failures;
};

absl::StatusOr<std::unique_ptr<BatchWorkers>> BatchWorkers::Create(
    std::vector<std::unique_ptr<BatchRunner>> runners, const WorkersOptions& options,
    const BatcherOptions& batcher, const Clock* clock, BatchObserver* observer,
    LoopRunner loop_runner) {
  BatcherOptions batcher_options = batcher;
  batcher_options.num_workers = static_cast<int>(runners.size());
  auto made = Batcher::Create(batcher_options, clock);
  if (!made.ok()) return made.status();
  return std::unique_ptr<BatchWorkers>(new BatchWorkers(
      std::move(runners), *std::move(made), options, clock, observer, std::move(loop_runner)));
}

BatchWorkers::BatchWorkers(std::vector<std::unique_ptr<BatchRunner>> runners,
                           std::unique_ptr<Batcher> batcher, const WorkersOptions& options,
                           const Clock* clock, BatchObserver* observer, LoopRunner loop_runner)
    : Workers(options, DevicesOf(runners), /*cut_off_time=*/absl::ZeroDuration(), clock),
      runners_(std::move(runners)),
      loop_runner_(std::move(loop_runner)),
      batcher_(std::move(batcher)),
      observer_(observer),
      usage_(runners_.size()),
      loop_runs_(std::make_shared<LoopRuns>(this)) {
  batcher_->SetWakesLater([runs = loop_runs_] {
    TurnWorkList* const list = TurnWorkList::OfThisThread();
    if (list != nullptr) list->Add(runs);
    return list != nullptr;
  });
}

void BatchWorkers::Stop() {
  batcher_->Close();
  Join();
  loop_runs_->Stop();
}

void BatchWorkers::CutOff() {
  batcher_->Abort(absl::UnavailableError(
      "the server is shutting down and ran out of time before this request was computed"));
}

void BatchWorkers::OnDeviceLost(int /*device*/, const absl::Status& error) {
  if (in_service() > 0) return;
  // A second caller finds an empty queue.
  batcher_->Stop(absl::UnavailableError(absl::StrCat(
      "every device that served this model has failed, the last with: ", error.message())));
}

bool BatchWorkers::Work(size_t worker, CoreSeats::Seat* seat, kernels::Turn* turn) {
  std::unique_ptr<Batch> batch;
  if (seat->is_taken()) batch = batcher_->TryTakeBatch();
  if (batch == nullptr) {
    seat->Release();
    batch = batcher_->TakeBatch(&out_of_service(worker));
  }
  if (batch == nullptr) return false;
  turn->Start();
  RunBatch(worker, std::move(batch), /*claimed=*/false, seat);
  return true;
}

void BatchWorkers::RunHereOrWake(bool in_time) {
  const size_t worker = in_time && MayGo() ? ClaimIdle() : runners_.size();
  if (worker == runners_.size()) {
    if (!RunLittleHere(/*urgent=*/false)) batcher_->Wake();
    return;
  }
  std::unique_ptr<Batch> batch = batcher_->TryTakeShortBatch();
  if (batch == nullptr) {
    Free(worker);
    return batcher_->Wake();
  }
  // The rest comes in a turn of its own: the loop writes the answers before.
  if (batch->left_some()) TurnWorkList::OfThisThread()->Add(loop_runs_);
  RunBatch(worker, std::move(batch), /*claimed=*/true, /*seat=*/nullptr);
}

bool BatchWorkers::RunLittleHere(bool urgent) {
  if (loop_runner_.runner == nullptr || loop_runner_busy_.exchange(true)) return false;
  std::unique_ptr<Batch> batch = batcher_->TryTakeLittleBatch(
      loop_runner_.most, urgent, [this](const Flow* flow) { return MayGoBeyond(flow); });
  if (batch == nullptr) {
    loop_runner_busy_.store(false);
    return false;
  }
  batcher_->Wake();
  const absl::Time start = clock().Now();
  const Outcome outcome = RunOn(*loop_runner_.runner, batch.get(), /*seat=*/nullptr);
  loop_runner_busy_.store(false);
  End(std::move(batch), outcome, start, /*used_before=*/absl::ZeroDuration(), /*seat=*/nullptr);
  return true;
}

void BatchWorkers::RunBatch(size_t worker, std::unique_ptr<Batch> batch, bool claimed,
                            CoreSeats::Seat* seat) {
  const absl::Time start = clock().Now();
  const bool is_timed = seat != nullptr && times_threads();  // what a loop computes is short
  const absl::Duration used_before = is_timed ? ThreadTime() : absl::ZeroDuration();
  Outcome outcome;
  int runs = 0;
  for (size_t on = worker; on < runners_.size() && runs < kMaxRuns; on = LeastLoaded()) {
    const bool again = runs > 0 || on != worker;
    if (!std::exchange(claimed, false)) Claim(on, again, seat);
    if (out_of_service(on)) {  // it may have failed since it was chosen
      outcome = Outcome();
      outcome.batch = outcome.shared = absl::UnavailableError(
          absl::StrCat("device ", runners_[on]->device(), " has failed and is out of service"));
    } else {
      outcome = RunOn(*runners_[on], batch.get(), seat);
    }
    Free(on);
    if (outcome.ran) ++runs;
    if (!absl::IsUnavailable(outcome.shared)) break;
    ReportLost(runners_[on]->device(), outcome.shared);
  }
  End(std::move(batch), outcome, start, used_before, seat);
}

void BatchWorkers::End(std::unique_ptr<Batch> batch, const Outcome& outcome, absl::Time start,
                       absl::Duration used_before, CoreSeats::Seat* seat) {
  for (const auto& [index, failure] : outcome.failures) batch->Fail(index, failure);
  const absl::Duration waited = seat == nullptr ? absl::ZeroDuration() : seat->TakeWaited();
  batch->StartLater(waited);
  const absl::Duration compute = clock().Now() - start - waited;
  if (used_before > absl::ZeroDuration()) {
    batch->SetInterrupted(std::max(absl::ZeroDuration(), compute - (ThreadTime() - used_before)));
  }
  // Reported before the answers, so that a client that has its answer finds the batch in the
  // metrics.
  if (observer_ != nullptr && !batch->sequences().empty()) {
    observer_->OnBatch(static_cast<int>(batch->sequences().size()), batch->num_tokens(), compute,
                       outcome.batch);
  }
  batcher_->Finish(std::move(batch), outcome.shared, compute);
}

size_t BatchWorkers::ClaimIdle() {
  const MutexLock lock(&usage_mutex_);
  for (size_t tried = 0; tried < runners_.size(); ++tried) {
    const size_t i = next_claim_++ % runners_.size();
    Usage& usage = usage_[i];
    if (usage.busy || usage.waiting_again > 0 || out_of_service(i)) continue;
    usage.busy = true;
    return i;
  }
  return runners_.size();
}

void BatchWorkers::Claim(size_t worker, bool again, CoreSeats::Seat* seat) {
  const MutexLock lock(&usage_mutex_);
  Usage& usage = usage_[worker];
  if (again) ++usage.waiting_again;
  while (usage.busy || (!again && usage.waiting_again > 0)) {
    if (seat != nullptr) seat->Release();  // whoever uses the runner may wait for one
    freed_.Wait(&usage_mutex_);
  }
  if (again) --usage.waiting_again;
  usage.busy = true;
}

void BatchWorkers::Free(size_t worker) {
  {
    const MutexLock lock(&usage_mutex_);
    usage_[worker].busy = false;
  }
  freed_.SignalAll();
}

size_t BatchWorkers::LeastLoaded() {
  const MutexLock lock(&usage_mutex_);
  const auto load = [this](size_t i) ABSL_EXCLUSIVE_LOCKS_REQUIRED(usage_mutex_) {
    return usage_[i].waiting_again + (usage_[i].busy ? 1 : 0);
  };
  size_t best = runners_.size();
  for (size_t i = 0; i < runners_.size(); ++i) {
    if (!out_of_service(i) && (best == runners_.size() || load(i) < load(best))) best = i;
  }
  return best;
}

BatchWorkers::Outcome BatchWorkers::RunOn(BatchRunner& runner, Batch* batch,
                                          CoreSeats::Seat* seat) {
  Outcome outcome;
  const crash::InFlight in_flight("batch", model_name());
  CoreSeats::Seat of_loop = MakeSeat();
  const bool waited =
      (seat == nullptr ? of_loop : *seat).Take(batch->parts(), /*waits=*/seat != nullptr);
  if (waited && batcher_->DropEnded(batch) && !batch->sequences().empty()) {
    seat->Take(batch->parts());  // only the callers whose work is left pay for it
  }
  const std::vector<const SequenceTask*>& all = batch->sequences();
  outcome.ran = !all.empty();
  const kernels::TurnEnd::Scope turns(seat);
  if (outcome.ran) outcome.batch = runner.Run(all);
  outcome.shared = RunAgain(runner, all, 0, all.size(), outcome.batch, &outcome.failures);
  if (!outcome.shared.ok()) {
    outcome.batch = outcome.shared;
    outcome.failures.clear();
  }
  return outcome;
}

}  // namespace sru::server::batching
