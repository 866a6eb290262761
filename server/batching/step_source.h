// StepSource: the scheduler of steps of one model (sequence_scheduler.h) and the runners that its
// steps run on. A worker takes a step and a free runner, runs the step and hands it back. The
// sequences of a device that fails are computed again elsewhere.
//
// With SchedulerOptions::result_at_end, how many steps a sequence will take is predicted from the
// rows that it is fed first, by how many steps those before it have taken for each.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_STEP_SOURCE_H_
#define SRU_SERVER_BATCHING_STEP_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/batching/steps/sequence_scheduler.h"
#include "server/batching/steps/step_runner.h"
#include "server/batching/steps/step_service.h"
#include "server/batching/work_source.h"

namespace sru::server::batching {

struct StepSourceOptions : WorkSourceOptions {
  SchedulerOptions scheduler;  // its `workers` follow from the runners
  // With what sequences end that the end of a drain cuts off.
  absl::Status drain_status = absl::UnavailableError("the server is shutting down");
};

class StepSource : public WorkSource, public StepService {
 public:
  // As many steps at a time as there are runners. `clock` must outlive the source, and so must
  // `observer`, which may be null. kInvalidArgument names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<StepSource>> Create(
      std::vector<std::unique_ptr<StepRunner>> runners, const StepSourceOptions& options,
      WorkerPool* pool, const Clock* clock, StepObserver* observer);
  ~StepSource() override { Stop(); }

  SequenceScheduler& scheduler() { return *scheduler_; }
  void Close() override { scheduler_->Close(); }
  // Ends every sequence as Drain() does at its deadline (SequenceScheduler::Suspend()), and leaves
  // the pool.
  void Stop();

  NextWork Next(int device, absl::Time now, bool nested) override;
  bool IsDone() override { return scheduler_->IsDone(); }
  bool RunNext(WorkerPool::Job* job) override;

  // StepService:
  absl::StatusOr<std::vector<SequenceHandle>> Submit(
      std::vector<SequenceRequest>&& requests) override;
  absl::Status CheckAdmission(int64_t rows, int64_t sequences, Priority priority,
                              absl::Time deadline, const Flow* flow) override {
    return scheduler_->CheckAdmission(rows, sequences, priority, deadline, flow);
  }
  void Cancel(const SequenceHandle& handle) override { scheduler_->Cancel(handle); }
  void Pause(const SequenceHandle& handle) override { scheduler_->Pause(handle); }
  void Resume(const SequenceHandle& handle) override { scheduler_->Resume(handle); }
  StepStats stats() const override;

 private:
  StepSource(std::vector<std::unique_ptr<StepRunner>> runners,
             std::unique_ptr<SequenceScheduler> scheduler, const StepSourceOptions& options,
             WorkerPool* pool, const Clock* clock, StepObserver* observer);

  std::optional<int64_t> WaitsForReadersAt() const override;
  void CutOff() override { scheduler_->Suspend(drain_status_); }
  void OnDeviceLost(int device, const absl::Status& error) override {
    scheduler_->LoseDevice(device, error);
  }
  // A runner of the device that nobody uses; runners_.size() if there is none.
  size_t FindIdle(int device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(usage_mutex_);
  void Free(size_t runner);
  // A step has run and has not been handed back: its sequences are in no other one.
  void Count(Step& step, const absl::Status& status, absl::Time start, absl::Time end);

  const bool result_at_end_;
  const absl::Status drain_status_;
  const std::vector<std::unique_ptr<StepRunner>> runners_;  // run by whoever made them busy
  const std::unique_ptr<SequenceScheduler> scheduler_;      // thread-safe by itself
  StepObserver* const observer_;
  Mutex usage_mutex_;
  std::vector<char> busy_ ABSL_GUARDED_BY(usage_mutex_);  // [runner]
  // The pool was told that there is no runner for a step that may start.
  bool was_short_ ABSL_GUARDED_BY(usage_mutex_) = false;
  std::atomic<int64_t> steps_{0};
  std::atomic<int64_t> fed_rows_{0};
  std::atomic<int64_t> new_tokens_{0};
  Mutex ratio_mutex_;
  double steps_per_row_ ABSL_GUARDED_BY(ratio_mutex_) = 0;  // 0: nothing is known yet
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEP_SOURCE_H_
