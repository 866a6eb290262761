#include "server/batching/step_workers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "kernels/turn.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/batching/core_pool.h"

namespace sru::server::batching {
namespace {

// Before the end of a drain, sequences are told to stop, so that what they leave is out in time: a tenth
// of the time that is left, at most this much.
constexpr absl::Duration kSuspendTime = absl::Seconds(1);

class StepWorkersImpl : public StepWorkers {
 public:
  StepWorkersImpl(std::vector<std::unique_ptr<StepRunner>> runners,
                  std::unique_ptr<SequenceScheduler> scheduler, const StepWorkersOptions& options,
                  const Clock* clock, StepListener* listener)
      : options_(options),
        clock_(clock),
        listener_(listener),
        runners_(std::move(runners)),
        scheduler_(std::move(scheduler)) {}

  ~StepWorkersImpl() override { StepWorkersImpl::Stop(); }

  SequenceScheduler& scheduler() override { return *scheduler_; }

  void Stop() override {
    scheduler_->Suspend(options_.drain_status);
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
      LogInfo(absl::StrCat(options_.name, ": ", options_.workers, " pinned to cores ",
                           absl::StrJoin(cores_, ", ")));
    }
    const MutexLock lock(&mutex_);
    while (cold_workers_ > 0) changed_.Wait(&mutex_);
    return warm_up_status_;
  }

  void LoseDevice(int device, const absl::Status& error) override {
    scheduler_->LoseDevice(device, error);
  }

  bool Drain(absl::Time deadline) override {
    scheduler_->Close();
    const absl::Time now = clock_->Now();
    const absl::Duration left = std::max(deadline - now, absl::ZeroDuration());
    if (WaitForWorkers(deadline - std::min(left / 10, kSuspendTime))) return true;
    scheduler_->Suspend(options_.drain_status);
    WaitForWorkers(deadline);
    return false;
  }

 private:
  // Called before the worker warms up, so that memory which it touches first is near its core.
  void Pin(int core) const {
    if (absl::Status status = PinThisThread(core); !status.ok()) {
      LogWarning(absl::StrCat(options_.name, ": --pin_cores: ", status.message()));
    }
  }

  // True when all of them have left: every sequence has ended.
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
    const absl::Status status = runner.WarmUp();
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
    const absl::Status status = runner.Run(step->shares());
    const absl::Time now = clock_->Now();
    if (absl::IsUnavailable(status)) ReportLost(runner.device(), status);
    listener_->OnStep(*step, status, start, now);
    scheduler_->FinishStep(std::move(step), status, now - start);
  }

  const StepWorkersOptions options_;
  const Clock* const clock_;
  StepListener* const listener_;
  const std::vector<std::unique_ptr<StepRunner>> runners_;
  const std::unique_ptr<SequenceScheduler> scheduler_;  // thread-safe by itself
  // Of whoever starts and stops the workers. They read cores_, which is constant meanwhile.
  std::vector<int> cores_;  // [worker], or empty: not pinned
  std::vector<std::thread> threads_;

  Mutex mutex_;
  CondVar changed_;  // signalled when one of the two counts below changes
  int cold_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  int live_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status warm_up_status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<StepWorkers>> StepWorkers::Create(
    std::vector<std::unique_ptr<StepRunner>> runners, const StepWorkersOptions& options,
    const Clock* clock, StepListener* listener) {
  SchedulerOptions scheduler_options = options.scheduler;
  scheduler_options.workers.assign(options.num_devices, 0);
  for (const auto& runner : runners) ++scheduler_options.workers[runner->device()];
  auto scheduler = SequenceScheduler::Create(scheduler_options, clock);
  if (!scheduler.ok()) return scheduler.status();
  return std::make_unique<StepWorkersImpl>(std::move(runners), *std::move(scheduler), options,
                                           clock, listener);
}

}  // namespace sru::server::batching
