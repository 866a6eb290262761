// WorkerPool: the threads that compute, for all models of a server. On the processor there are as
// many as cores that the process may use, on a GPU two.
//
// A model is a source of work, such as its queue of batches (work_source.h). A worker takes what
// should go next from the sources by the rule of fair_share.h, computes it, and looks again. What
// takes long is interrupted at the end of a turn (kernels/turn.h) if other work has to go first:
// the worker computes that itself, nested, up to kMostNested deep, and goes on. No thread is woken
// for it, and no more threads compute than there are workers, but for one that does not wait.
//
// A thread that must not wait, such as an event loop, may stand in for a worker that is idle
// (TryEnter()), or itself compute a little that has to go before what the workers compute: it has a
// core already, which a worker may have to wait for.
//
// Thread-safe. A choice takes O(n) steps with n sources that have work, under a mutex.
#ifndef SRU_SERVER_BATCHING_WORKER_POOL_H_
#define SRU_SERVER_BATCHING_WORKER_POOL_H_

#include <atomic>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/turn.h"
#include "server/base/clock.h"
#include "server/batching/fair_share.h"
#include "server/batching/queue/flow.h"

namespace sru::server::batching {

class WorkSource;

struct WorkerPoolOptions {
  std::vector<int> workers = {1};  // [device]
  // Long work is interrupted at the end of a turn; else a turn's end only yields the core.
  bool interrupts = false;
  bool pin_cores = false;  // each worker stays on one core
  // Runs a worker's life somewhere. Empty: on a thread of its own. A simulation has no threads.
  std::function<void(std::function<void()> life)> launch;
};

class WorkerPool {
 public:
  static constexpr int kMostNested = 2;

  // Starts the workers. `clock` must outlive the pool.
  WorkerPool(WorkerPoolOptions options, const Clock* clock);
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  ~WorkerPool() { Stop(); }
  // Ends the workers. Every source must have left.
  void Stop();

  int workers(int device) const { return options_.workers[device]; }
  int num_devices() const { return static_cast<int>(options_.workers.size()); }
  bool interrupts() const { return options_.interrupts; }

  // What a thread computes for a source, from when it has been chosen. Used by that thread.
  class Job final : public kernels::TurnEnd {
   public:
    // `outer`: the job of this thread that it interrupts, or null.
    Job(WorkerPool* pool, int device, Job* outer, bool may_be_interrupted)
        : pool_(*pool),
          device_(device),
          outer_(outer),
          may_be_interrupted_(may_be_interrupted && DepthOf(outer) < kMostNested),
          run_(outer == nullptr ? nullptr : &outer->run_) {}
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    int device() const { return device_; }
    bool is_nested() const { return outer_ != nullptr; }
    // It begins with a batch or step of these parts, of which there is at least one.
    void Begin(absl::Span<const FlowPart> parts, const WorkSource* source);
    // For how long it has been interrupted since Begin(), and the processor time of this thread
    // meanwhile.
    absl::Duration interrupted() const { return interrupted_; }
    absl::Duration interrupted_thread_time() const { return interrupted_thread_time_; }

    void OnTurnEnd() override;
    bool HasIdleCore() const override;

   private:
    friend class WorkerPool;
    static int DepthOf(const Job* outer) {
      return outer == nullptr ? 0 : 1 + DepthOf(outer->outer_);
    }

    WorkerPool& pool_;
    const int device_;
    Job* const outer_;
    const bool may_be_interrupted_;
    absl::Duration interrupted_;
    absl::Duration interrupted_thread_time_;
    FairShare::Run run_;  // guarded by the pool's mutex
  };

  // A source is served from now on.
  void Add(WorkSource* source);
  // Waits until nobody computes for it, which must have no work any more. Others may come at its
  // address.
  void Remove(WorkSource* source);
  // The source may have work, or can give it earlier than it has said: wakes a worker of each
  // device that has idle ones. Not with a lock that the source takes to answer.
  void Notify(WorkSource* source);
  // Waits until the source is done (WorkSource::IsDone()) and nobody computes for it. False if it
  // is not at `deadline`.
  bool WaitUntilDone(WorkSource* source, absl::Time deadline);

  // The calling thread, which runs no worker, computes for the source until Leave(): in place of a
  // worker that is idle, or with `interrupts`, if none is, what has to go before what they compute.
  // False if it may not.
  bool TryEnter(WorkSource* source, int device, bool interrupts);
  void Leave(WorkSource* source, Job* job);

  // Whether fewer threads compute on the device than it has workers.
  bool has_idle_worker(int device) const { return free_[device].load() > 0; }

 private:
  struct Worker {
    explicit Worker(int device) : device(device) {}
    const int device;
    int core = -1;  // -1: not pinned
    std::thread thread;
  };
  struct Device {
    int computing = 0;  // threads; one more than there are workers while a loop interrupts them
    int sleeping = 0;   // workers
    int woken = 0;      // of these, signalled, but not running yet
    CondVar work;
    FairShare shares;
  };

  void Live(const Worker& worker);
  // The source that a worker of the device should compute for next; null if none may now: then
  // `until` is when to look again. With `interrupted` as FairShare::First().
  WorkSource* Choose(int device, const FairShare::Run* interrupted, const FairShare::Run* goes_on,
                     absl::Time* until) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountComputing(int device, int more) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    devices_[device].computing += more;
    free_[device] = workers(device) - devices_[device].computing;
  }
  void Activate(WorkSource* source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeOne(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeSome() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // one of each device
  // The job has ended, or a part of it that a worker follows with more.
  void EndUse(WorkSource* source) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Computes, within the job, what has to go first.
  void RunNested(Job* job);

  const WorkerPoolOptions options_;
  const Clock& clock_;
  std::deque<Worker> workers_;          // constant once started
  std::vector<std::atomic<int>> free_;  // [device]: workers less threads that compute
  std::atomic<size_t> num_active_{0};   // as active_ has

  Mutex mutex_;
  CondVar changed_;  // a source has one user less, or is to be looked at by who waits for its end
  std::deque<Device> devices_ ABSL_GUARDED_BY(mutex_);
  std::vector<WorkSource*> active_ ABSL_GUARDED_BY(mutex_);  // that may have work
  // While a choice is made.
  std::vector<FairShare::Waiting> waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<WorkSource*> waiting_sources_ ABSL_GUARDED_BY(mutex_);
  int live_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_WORKER_POOL_H_
