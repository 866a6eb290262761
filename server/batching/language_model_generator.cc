#include "server/batching/language_model_generator.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <new>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/turn.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/base/mutex.h"
#include "server/base/out_of_memory.h"
#include "server/batching/core_pool.h"

namespace sru::server {
namespace {

constexpr int kMaxSamples = 64;
// Before the end of a drain, calls are told to stop, so that their states are out in time: a tenth of
// the time that is left, at most this much.
constexpr absl::Duration kSuspendTime = absl::Seconds(1);

absl::Status DrainStatus() {
  return absl::UnavailableError(
      "the server is shutting down; go on from the state on another replica");
}

class LanguageModelGeneratorImpl : public LanguageModelGenerator {
 public:
  LanguageModelGeneratorImpl(std::vector<std::unique_ptr<StepRunner>> runners,
                             std::unique_ptr<SequenceScheduler> scheduler,
                             const LanguageModelGeneratorOptions& options, const Clock* clock,
                             GenerateObserver* observer)
      : options_(options),
        clock_(clock),
        observer_(observer),
        runners_(std::move(runners)),
        scheduler_(std::move(scheduler)) {
    OutOfMemoryStatus();  // is made now, while there is memory for it
  }

  ~LanguageModelGeneratorImpl() override { Stop(); }

  void Stop() override {
    scheduler_->Suspend(DrainStatus());
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    for (const int core : cores_) ProcessCorePool().Release(core);
    cores_.clear();
  }

  absl::Status Start() override {
    for (size_t i = 0; options_.pin_cores && i < runners_.size(); ++i) {
      const int core = ProcessCorePool().Acquire();
      if (core >= 0) cores_.push_back(core);
    }
    {
      const MutexLock lock(&mutex_);
      cold_workers_ = live_workers_ = static_cast<int>(runners_.size());
    }
    threads_.reserve(runners_.size());
    for (size_t i = 0; i < runners_.size(); ++i) {
      threads_.emplace_back([this, i] {
        if (i < cores_.size()) Pin(cores_[i]);
        Work(*runners_[i]);
      });
    }
    if (!cores_.empty()) {
      LogInfo(absl::StrCat(options_.name, ": workers that generate pinned to cores ",
                           absl::StrJoin(cores_, ", ")));
    }
    const MutexLock lock(&mutex_);
    while (cold_workers_ > 0) changed_.Wait(&mutex_);
    return warm_up_status_;
  }

  absl::StatusOr<GenerateHandle> Submit(GenerateTask&& task, absl::Duration* retry_after) override {
    if (absl::Status status = Check(task); !status.ok()) return status;
    SequenceRequest request;
    request.priority = task.priority;
    request.deadline = task.deadline;
    request.least_steps = std::max(1, task.min_new_tokens);
    auto sequence = std::make_unique<GenerateSequence>(&task, options_.model, clock_->Now());
    GenerateSequence* const made = sequence.get();
    request.sequence = std::move(sequence);
    try {
      auto handle = scheduler_->Submit(std::move(request), retry_after);
      if (!handle.ok()) made->GiveBack(&task);
      return handle;
    } catch (const std::bad_alloc&) {
      made->GiveBack(&task);
      throw;
    }
  }

  absl::Status CheckAdmission(int64_t prompt_tokens, Priority priority, absl::Time deadline,
                              absl::Duration* retry_after) override {
    return scheduler_->CheckAdmission(prompt_tokens, priority, deadline, retry_after);
  }
  void Cancel(const GenerateHandle& handle) override { scheduler_->Cancel(handle); }
  void Pause(const GenerateHandle& handle) override { scheduler_->Pause(handle); }
  void Resume(const GenerateHandle& handle) override { scheduler_->Resume(handle); }

  void LoseDevice(int device, const absl::Status& error) override {
    scheduler_->LoseDevice(device, error);
  }

  bool Drain(absl::Time deadline) override {
    scheduler_->Close();
    const absl::Time now = clock_->Now();
    const absl::Duration left = std::max(deadline - now, absl::ZeroDuration());
    if (WaitForWorkers(deadline - std::min(left / 10, kSuspendTime))) return true;
    scheduler_->Suspend(DrainStatus());
    WaitForWorkers(deadline);
    return false;
  }

  GeneratorStats stats() const override {
    const SchedulerStats scheduled = scheduler_->stats();
    GeneratorStats stats;
    stats.running = scheduled.running;
    stats.waiting = scheduled.waiting;
    stats.paused = scheduled.paused;
    stats.waiting_tokens = scheduled.waiting_rows;
    stats.steps = steps_.load(std::memory_order_relaxed);
    stats.prompt_tokens = prompt_tokens_.load(std::memory_order_relaxed);
    stats.new_tokens = new_tokens_.load(std::memory_order_relaxed);
    stats.expired = scheduled.expired;
    stats.cancelled = scheduled.cancelled;
    stats.replayed = scheduled.replayed;
    stats.rejected = scheduled.rejected;
    return stats;
  }

 private:
  absl::Status Check(const GenerateTask& task) const {
    const auto bad = [](const char* field, const auto& expected, const auto& found) {
      return absl::InvalidArgumentError(
          absl::StrCat(field, ": expected ", expected, ", found ", found));
    };
    if (task.prompt.empty() && task.state == nullptr) {
      return bad("prompt", "at least one token, or a state", "none");
    }
    for (const int32_t id : task.prompt) {
      if (id < 0 || id >= options_.vocabulary_size) {
        return bad("prompt", absl::StrCat("token ids from 0 to ", options_.vocabulary_size - 1),
                   id);
      }
    }
    if (task.num_samples < 1 || task.num_samples > kMaxSamples) {
      return bad("num_samples", absl::StrCat("1 to ", kMaxSamples), task.num_samples);
    }
    if (task.max_new_tokens < 1) return bad("max_new_tokens", "at least 1", task.max_new_tokens);
    if (task.min_new_tokens < 0 || task.min_new_tokens > task.max_new_tokens) {
      return bad("min_new_tokens",
                 absl::StrCat("0 to max_new_tokens, which is ", task.max_new_tokens),
                 task.min_new_tokens);
    }
    for (const int32_t id : task.stop_token_ids) {
      if (id < 0 || id >= options_.vocabulary_size) {
        return bad("stop_token_ids",
                   absl::StrCat("token ids from 0 to ", options_.vocabulary_size - 1), id);
      }
    }
    return models::ValidateSampling(task.sampling, options_.vocabulary_size);
  }

  // Called before the worker warms up, so that memory which it touches first is near its core.
  void Pin(int core) const {
    if (absl::Status status = PinThisThread(core); !status.ok()) {
      LogWarning(absl::StrCat(options_.name, ": --pin_cores: ", status.message()));
    }
  }

  // True when all of them have left: every call has ended.
  bool WaitForWorkers(absl::Time deadline) {
    const MutexLock lock(&mutex_);
    for (absl::Time now = clock_->Now(); live_workers_ > 0 && now < deadline; now = clock_->Now()) {
      changed_.WaitFor(&mutex_, deadline - now);
    }
    return live_workers_ == 0;
  }

  void ReportLost(int device, const absl::Status& error) {
    if (options_.on_device_lost) {
      options_.on_device_lost(device, error);
    } else {
      LoseDevice(device, error);
    }
  }

  // A worker's life.
  void Work(StepRunner& runner) {
    const absl::Status status = CatchOutOfMemory([&runner] { return runner.WarmUp(); });
    const bool lost = absl::IsUnavailable(status);
    if (lost) ReportLost(runner.device(), status);
    {
      const MutexLock lock(&mutex_);
      if (!lost) warm_up_status_.Update(status);
      --cold_workers_;
      changed_.SignalAll();
    }
    kernels::Turn turn(absl::ToChronoMicroseconds(options_.compute_turn));
    while (std::unique_ptr<Step> step = scheduler_->TakeStep(runner.device())) {
      turn.Start();
      RunStep(runner, std::move(step));
      turn.MayEnd();
    }
    const MutexLock lock(&mutex_);
    --live_workers_;
    changed_.SignalAll();
  }

  void RunStep(StepRunner& runner, std::unique_ptr<Step> step) {
    const absl::Time start = clock_->Now();
    const absl::Status status = CatchOutOfMemory([&] { return runner.Run(step->shares()); });
    const absl::Time now = clock_->Now();
    if (absl::IsUnavailable(status)) ReportLost(runner.device(), status);
    int new_tokens = 0;
    int prompt_tokens = step->fed_rows();
    for (StepShare& share : step->shares()) {
      prompt_tokens -= share.unused;
      auto& sequence = static_cast<GenerateSequence&>(*share.sequence);
      const int tokens = sequence.TakeNewTokens();
      if (tokens == 0) continue;
      new_tokens += tokens;
      if (observer_ != nullptr) {
        if (sequence.last_tokens == absl::InfinitePast()) {
          observer_->OnFirstToken(now - sequence.submitted());
        } else {
          observer_->OnNextToken(now - sequence.last_tokens, tokens);
        }
      }
      sequence.last_tokens = now;
    }
    steps_.fetch_add(1, std::memory_order_relaxed);
    if (status.ok()) prompt_tokens_.fetch_add(prompt_tokens, std::memory_order_relaxed);
    new_tokens_.fetch_add(new_tokens, std::memory_order_relaxed);
    if (observer_ != nullptr) {
      observer_->OnStep(static_cast<int>(step->shares().size()), prompt_tokens, new_tokens,
                        now - start, status);
    }
    scheduler_->FinishStep(std::move(step), status, now - start);
  }

  const LanguageModelGeneratorOptions options_;
  const Clock* const clock_;
  GenerateObserver* const observer_;
  const std::vector<std::unique_ptr<StepRunner>> runners_;
  const std::unique_ptr<SequenceScheduler> scheduler_;  // thread-safe by itself
  std::vector<int> cores_;                              // [worker], or empty: not pinned
  std::vector<std::thread> threads_;
  std::atomic<int64_t> steps_{0};
  std::atomic<int64_t> prompt_tokens_{0};
  std::atomic<int64_t> new_tokens_{0};

  Mutex mutex_;
  CondVar changed_;  // signalled when one of the two counts below changes
  int cold_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  int live_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status warm_up_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<LanguageModelGenerator>> LanguageModelGenerator::Create(
    std::vector<std::unique_ptr<StepRunner>> runners, const LanguageModelGeneratorOptions& options,
    const Clock* clock, GenerateObserver* observer) {
  SchedulerOptions scheduler_options = options.scheduler;
  scheduler_options.workers.assign(options.num_devices, 0);
  for (const auto& runner : runners) ++scheduler_options.workers[runner->device()];
  auto scheduler = SequenceScheduler::Create(scheduler_options, clock);
  if (!scheduler.ok()) return scheduler.status();
  return std::make_unique<LanguageModelGeneratorImpl>(std::move(runners), *std::move(scheduler),
                                                      options, clock, observer);
}

}  // namespace sru::server
