// BatchSource: the queue of batches of one model (batcher.h) and the runners that its batches run
// on. A worker takes a batch and a free runner, runs the forward pass and hands the batch back.
//
// An error of one batch fails only its requests. When the backend calls a batch invalid, its
// sequences are run one by one, so that only the request with the bad input fails. When it has no
// memory for a batch, such as for its states, the halves are run one after the other, and so on:
// only a sequence for which there is none even alone fails.
//
// The batch of a device that fails is run once more, on another device; only once, so that an input
// that breaks devices does not break all of them. A batch that fails again, or has no device to go
// to, is answered with kUnavailable. When no device is left, every waiting request is answered and
// every new one refused with that code, at once.
//
// The thread of an event loop that has submitted requests computes them by itself if that is short
// and a worker is idle: to wake the worker, and to be woken by it, would cost more
// (docs/decisions/0004-compute-on-the-loop.md). While all workers are busy, the loop computes a
// small batch that has to go before theirs, since it has a core at that moment and they may not.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_BATCH_SOURCE_H_
#define SRU_SERVER_BATCHING_BATCH_SOURCE_H_

#include <atomic>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/batching/batch_runner.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/work_source.h"

namespace sru::server::batching {

class BatchSource : public WorkSource {
 public:
  // For batches of at most this that interrupt others.
  struct NestedRunner {
    std::unique_ptr<BatchRunner> runner;  // null: there are none
    OrderWeight most;
  };

  // As many batches at a time as there are runners. `clock` must outlive the source, and so must
  // `observer`, which may be null.
  BatchSource(std::vector<std::unique_ptr<BatchRunner>> runners, std::unique_ptr<Batcher> batcher,
              const WorkSourceOptions& options, WorkerPool* pool, const Clock* clock,
              ComputeObserver* observer, NestedRunner nested = NestedRunner());
  ~BatchSource() override { Stop(); }

  Batcher& batcher() { return *batcher_; }
  void Close() override { batcher_->Close(); }
  // Closes the batcher, waits until every accepted request is answered and leaves the pool.
  void Stop();

  NextWork Next(int device, absl::Time now, bool nested) override;
  bool IsDone() override { return batcher_->IsDone(); }
  bool RunNext(WorkerPool::Job* job) override;

 private:
  struct Outcome;
  class LoopRuns;

  void CutOff() override;
  void OnPlacesLeft(int places) override { batcher_->SetNumWorkers(places); }
  void OnDeviceLost(int device, const absl::Status& error) override;

  // Runs a short batch on this thread, or wakes a worker. `in_time`: as TurnWork has it.
  void RunHereOrWake(bool in_time);
  // Runs on this thread what has to go before what the workers compute. False if nothing has to.
  bool InterruptHere();
  // The thread has entered the pool with this runner: runs the batch, unless it is null, and
  // leaves. Returns whether there was one.
  bool RunEntered(size_t runner, int device, std::unique_ptr<Batch> batch);
  // As RunnerClaims::Claim(); `end` if the device is lost.
  size_t Claim(int device, size_t begin, size_t end) {
    return is_lost(device) ? end : claims_.Claim(device, begin, end);
  }
  // RunNext() on one of these runners; `strictly` as Batcher::TryTakeBatchWithin() has it.
  bool RunWithin(size_t begin, size_t end, bool strictly, WorkerPool::Job* job);
  void Free(size_t runner) {
    if (claims_.Free(runner)) Notify();
  }
  // Runs a batch, first on `runner`, which has been claimed, and hands it back. `is_timed`: it may
  // take long.
  void RunBatch(size_t runner, std::unique_ptr<Batch> batch, bool is_timed, WorkerPool::Job* job);
  Outcome RunOn(BatchRunner& runner, const Batch& batch);
  // The runner in service that a batch would wait for least; runners_.size() when there is none.
  size_t LeastLoaded();

  // Run by whoever has claimed them. The one for nested batches, if there is one, comes last.
  const std::vector<std::unique_ptr<BatchRunner>> runners_;
  const size_t num_places_;  // without that one
  const OrderWeight most_nested_;
  const std::unique_ptr<Batcher> batcher_;  // thread-safe by itself
  ComputeObserver* const observer_;
  RunnerClaims claims_;
  // Where a loop looks first: in turns, so that a device that has failed is noticed.
  std::atomic<int> next_device_{0};
  const std::shared_ptr<LoopRuns> loop_runs_;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_BATCH_SOURCE_H_
