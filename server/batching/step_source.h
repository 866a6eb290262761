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
#include "server/batching/batch_runner.h"
#include "server/batching/steps/sequence_scheduler.h"
#include "server/batching/steps/step_runner.h"
#include "server/batching/steps/step_service.h"
#include "server/batching/work_source.h"

namespace sru::server::batching {

class StepSource : public WorkSource, public StepService {
 public:
  // As many steps at a time as there are runners; SchedulerOptions::workers says how many each
  // device has. `drain_status`: with what sequences end that the end of a drain cuts off. `clock`
  // must outlive the source, and so must `observer`, which may be null.
  StepSource(std::vector<std::unique_ptr<StepRunner>> runners,
             std::unique_ptr<SequenceScheduler> scheduler, absl::Status drain_status,
             const WorkSourceOptions& options, WorkerPool* pool, const Clock* clock,
             ComputeObserver* observer);
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
  std::optional<int64_t> WaitsForReadersAt() const override;
  void CutOff() override { scheduler_->Suspend(drain_status_); }
  void OnDeviceLost(int device, const absl::Status& error) override {
    scheduler_->LoseDevice(device, error);
  }
  void Free(size_t runner) {
    if (claims_.Free(runner)) Notify();
  }
  // A step has run and has not been handed back: its sequences are in no other one.
  void Count(Step& step, const absl::Status& status, absl::Time start, absl::Time end);

  const absl::Status drain_status_;
  const std::vector<std::unique_ptr<StepRunner>> runners_;  // run by whoever has claimed them
  const std::unique_ptr<SequenceScheduler> scheduler_;      // thread-safe by itself
  ComputeObserver* const observer_;
  RunnerClaims claims_;
  std::atomic<int64_t> steps_{0};
  std::atomic<int64_t> fed_rows_{0};
  std::atomic<int64_t> new_tokens_{0};
  Mutex ratio_mutex_;
  double steps_per_row_ ABSL_GUARDED_BY(ratio_mutex_) = 0;  // 0: nothing is known yet
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEP_SOURCE_H_
