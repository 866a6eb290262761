// WorkSource: what the workers of a pool (worker_pool.h) take their work from. The queue of batches
// of a model (batch_source.h) and its scheduler of steps (step_source.h) are such sources.
//
// A device that fails for good is taken out of service, and stays out.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_WORK_SOURCE_H_
#define SRU_SERVER_BATCHING_WORK_SOURCE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/base/clock.h"
#include "server/batching/queue/flow.h"
#include "server/batching/worker_pool.h"

namespace sru::server::batching {

struct WorkSourceOptions {
  std::string name = "engine";  // of the model, for the report of a crash
  const void* model = nullptr;  // tells models apart in the pool
  // A worker computes on its own thread, whose processor time counts.
  bool times_threads = false;
  // Told by a worker whose device has failed, possibly several times; must call LoseDevice().
  // Empty: the worker calls it.
  std::function<void(int device, const absl::Status& error)> on_device_lost;
};

// [device]: how many of the runners are on it.
template <typename Runners>
std::vector<int> PlacesOf(const Runners& runners, int num_devices) {
  std::vector<int> places(num_devices);
  for (const auto& runner : runners) ++places[runner->device()];
  return places;
}

// Which runners of a source are in use. A runner serves one thread at a time. Thread-safe.
class RunnerClaims {
 public:
  template <typename Runners>
  explicit RunnerClaims(const Runners& runners) {
    for (const auto& runner : runners) uses_.push_back({runner->device()});
  }

  // Claims the first runner in [begin, end) of the device that nobody uses; `end` if there is none.
  size_t Claim(int device, size_t begin, size_t end);
  // Whether Claim() would find one.
  bool CanClaim(int device, size_t end);
  // Waits until nobody uses the runner and claims it: for work that has run before. It goes before
  // new work, behind whose whole queue it would otherwise wait.
  void ClaimAgain(size_t runner);
  // True if CanClaim() was false since the last time.
  bool Free(size_t runner);
  // [runner]: how many use it or wait for it.
  std::vector<int> Loads();

 private:
  struct Use {
    int device = 0;
    bool busy = false;
    int waiting_again = 0;
  };
  size_t Find(int device, size_t begin, size_t end) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  CondVar freed_;
  std::vector<Use> uses_ ABSL_GUARDED_BY(mutex_);  // [runner]
  bool was_short_ ABSL_GUARDED_BY(mutex_) = false;
};

class WorkSource {
 public:
  WorkSource(const WorkSource&) = delete;
  WorkSource& operator=(const WorkSource&) = delete;
  virtual ~WorkSource() = default;

  // From now on workers compute.
  void Start() { pool_.Add(this); }
  const void* model() const { return options_.model; }

  // How many batches or steps may run at a time on devices that have not failed.
  int in_service() const { return in_service_.load(); }
  // The device has failed. False if that was known, or nothing runs on it.
  bool LoseDevice(int device, const absl::Status& error);

  // Refuses new work from now on.
  virtual void Close() = 0;
  // Close(), then waits until all that was accepted has ended. What is left at `deadline`, or a
  // little before it, is cut off; false then. Once all that is left has waited for its readers for
  // a second, it is cut off as well: true then.
  bool Drain(absl::Time deadline);

  // The following are called by the pool.
  // For a worker of that device; with `nested` for one that interrupts other work for it. With the
  // pool's lock held.
  virtual NextWork Next(int device, absl::Time now, bool nested) = 0;
  // All that was accepted has ended, and nothing new is. With the pool's lock held.
  virtual bool IsDone() = 0;
  // Takes what goes next on the job's device, computes it on this thread and hands it back. May end
  // what has expired instead. False: there was nothing to compute.
  virtual bool RunNext(WorkerPool::Job* job) = 0;

 protected:
  // `places`: [device]: how many batches or steps may run there at a time; 0: none ever.
  // `cut_off_time` before the end of a drain, or a tenth of its time if that is less, CutOff() is
  // called. `pool` and `clock` must outlive the source.
  WorkSource(WorkSourceOptions options, WorkerPool* pool, std::vector<int> places,
             absl::Duration cut_off_time, const Clock* clock);

  // A count that grows with all that runs, if nothing can run before a reader takes what it was
  // given.
  virtual std::optional<int64_t> WaitsForReadersAt() const { return std::nullopt; }
  // Ends what was accepted, as far as it is not running.
  virtual void CutOff() = 0;
  // LoseDevice() was called. The first is called with a lock held, in the order in which devices
  // are lost, if any are left.
  virtual void OnPlacesLeft(int /*places*/) {}
  virtual void OnDeviceLost(int device, const absl::Status& error) = 0;

  bool is_lost(int device) const { return lost_[device].load(); }
  void ReportLost(int device, const absl::Status& error);
  // Waits until all has ended, which the caller has brought about, and leaves the pool. To be
  // called before a subclass is destroyed.
  void Leave();
  void Notify() { pool_.Notify(this); }

  WorkerPool& pool() const { return pool_; }
  const Clock& clock() const { return *clock_; }
  const std::string& model_name() const { return options_.name; }
  // Whether the processor time of a thread that computes says how long it was interrupted.
  bool times_threads() const { return options_.times_threads; }

 private:
  friend class WorkerPool;

  const WorkSourceOptions options_;
  WorkerPool& pool_;
  const absl::Duration cut_off_time_;
  const Clock* const clock_;
  const std::vector<int> places_;        // [device]
  std::vector<std::atomic<bool>> lost_;  // [device]
  std::atomic<int> in_service_;
  Mutex lost_mutex_;

  // The pool's.
  std::atomic<bool> notified_{false};  // and not looked at since
  std::atomic<int> awaited_{0};        // threads in WaitUntilDone()
  bool added_ = false;                 // the rest is guarded by the pool's mutex
  bool active_ = false;
  int users_ = 0;     // threads that compute for it
  absl::Time since_;  // since when it is active
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_WORK_SOURCE_H_
