// BatchWorkers: the queue of batches of one model (batcher.h) and the workers that run it. Each
// owns one runner, takes batches, runs the forward pass and hands the batch back.
//
// An error of one batch fails only its requests. When the backend calls a batch invalid, its
// sequences are run one by one, so that only the request with the bad input fails. When it has no
// memory for a batch, such as for its states, the halves are run one after the other, and so on:
// only a sequence for which there is none even alone fails.
//
// The batch of a device that fails is run once more, on another device; only once, so that an input
// that breaks devices does not break all of them. A batch that fails again, or has no device to go
// to, is answered with kUnavailable. When no worker is left, every waiting request is answered and
// every new one refused with that code, at once.
//
// The thread of an event loop that has submitted requests computes them by itself if that is short
// and a runner is idle: to wake a worker, and to be woken by it, would cost more
// (docs/decisions/0004-compute-on-the-loop.md). While all workers are busy, it has a runner of its
// own for the calls of those of whom little waits: they would wait for the work of others.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_BATCH_WORKERS_H_
#define SRU_SERVER_BATCHING_BATCH_WORKERS_H_

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/status.h"
#include "server/batching/batch_runner.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/workers.h"

namespace sru::server::batching {

class BatchWorkers : public Workers {
 public:
  // The runner on which loops compute while all workers are busy with others' work.
  struct LoopRunner {
    std::unique_ptr<BatchRunner> runner;  // null: they leave it all to the workers
    OrderWeight most;                     // that it can run at a time
  };

  // One worker per runner; `batcher.num_workers` is ignored. `clock` must outlive the workers, and
  // so must `observer`, which may be null. kInvalidArgument names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<BatchWorkers>> Create(
      std::vector<std::unique_ptr<BatchRunner>> runners, const WorkersOptions& options,
      const BatcherOptions& batcher, const Clock* clock, BatchObserver* observer,
      LoopRunner loop_runner = LoopRunner());
  ~BatchWorkers() override { Stop(); }

  Batcher& batcher() { return *batcher_; }
  void Close() override { batcher_->Close(); }
  // Closes the batcher, waits until every accepted request is answered and joins the workers.
  void Stop();

 private:
  struct Outcome;
  class LoopRuns;
  // Of a runner, which works for one thread at a time. Its own worker lets a batch that is run
  // again go first, so that such a batch does not wait behind a whole queue.
  struct Usage {
    bool busy = false;
    int waiting_again = 0;
  };

  BatchWorkers(std::vector<std::unique_ptr<BatchRunner>> runners, std::unique_ptr<Batcher> batcher,
               const WorkersOptions& options, const Clock* clock, BatchObserver* observer,
               LoopRunner loop_runner);

  absl::Status WarmUp(size_t worker) override {
    if (worker == 0 && loop_runner_.runner != nullptr) {
      SRU_RETURN_UNLESS_OK(loop_runner_.runner->WarmUp());
    }
    return runners_[worker]->WarmUp();
  }
  bool Work(size_t worker, CoreSeats::Seat* seat, kernels::Turn* turn) override;
  void CutOff() override;
  void OnWorkersLeft(int workers) override { batcher_->SetNumWorkers(workers); }
  void OnDeviceLost(int device, const absl::Status& error) override;

  // Runs a short batch on this thread, or wakes a worker. `in_time`: as TurnWork has it.
  void RunHereOrWake(bool in_time);
  // Runs what is little (Batcher::TryTakeLittleBatch()) on this thread, and leaves the rest to the
  // workers. False if there is nothing.
  bool RunLittleHere(bool urgent);
  // The runner of a worker in service that nobody uses, which is busy from now on; runners_.size()
  // if there is none.
  size_t ClaimIdle();
  void Free(size_t worker);
  // Runs a batch and hands it back. `claimed`: the worker's runner is busy with it already. `seat`:
  // null on a loop, which must not wait.
  void RunBatch(size_t worker, std::unique_ptr<Batch> batch, bool claimed, CoreSeats::Seat* seat);
  // The batch has been run since `start`, when the thread had used that much processor time (0: not
  // known): hands it back.
  void End(std::unique_ptr<Batch> batch, const Outcome& outcome, absl::Time start,
           absl::Duration used_before, CoreSeats::Seat* seat);
  // Waits until the runner is free, and makes it busy. `again`: the batch has run before. Releases
  // the seat to wait.
  void Claim(size_t worker, bool again, CoreSeats::Seat* seat);
  // Runs what is left of the batch once it has a core.
  Outcome RunOn(BatchRunner& runner, Batch* batch, CoreSeats::Seat* seat);
  // The worker in service that a batch would wait for least; runners_.size() when there is none.
  size_t LeastLoaded();

  const std::vector<std::unique_ptr<BatchRunner>> runners_;  // [worker]; run by whoever set `busy`
  const LoopRunner loop_runner_;
  std::atomic<bool> loop_runner_busy_{false};  // likewise
  const std::unique_ptr<Batcher> batcher_;     // thread-safe by itself
  BatchObserver* const observer_;
  Mutex usage_mutex_;
  CondVar freed_;
  std::vector<Usage> usage_ ABSL_GUARDED_BY(usage_mutex_);  // [worker]
  // Where ClaimIdle() looks first: in turns, so that a device that has failed is noticed.
  size_t next_claim_ ABSL_GUARDED_BY(usage_mutex_) = 0;
  const std::shared_ptr<LoopRuns> loop_runs_;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_BATCH_WORKERS_H_
