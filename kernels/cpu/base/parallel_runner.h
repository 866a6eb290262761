// Splits one large batch across cores that would otherwise be idle. A backend owns one: helper
// threads, parked on a condition variable, and a count of the cores that are busy with batches.
//
//   ParallelRunner::Batch running(runner);                   // this thread is busy with a batch
//   runner.ForEach(items, [&](int item, int slot) { ... });  // returns when all items are done
//
// Helpers join only while fewer threads than cores are busy, here and as the caller's TurnEnd knows
// it (a worker between two batches is not busy here, and its core is not idle). They leave after
// the item at hand when another batch begins. Thread-safe: several batches may run at a time.
#ifndef SRU_KERNELS_CPU_BASE_PARALLEL_RUNNER_H_
#define SRU_KERNELS_CPU_BASE_PARALLEL_RUNNER_H_

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "kernels/mutex.h"
#include "kernels/turn.h"

namespace sru::kernels::cpu {

// A phase of a batch with fewer operations is not worth waking another thread for.
inline constexpr double kMinSplitOperations = 2e7;

// Cores that this process may run on.
int AvailableCores();

class ParallelRunner {
 public:
  // At most `threads` threads work on one batch, the caller's included; 1 starts no thread. They
  // are taken as idle while fewer than `cores` are busy.
  ParallelRunner(int threads, int cores);
  ~ParallelRunner();
  ParallelRunner(const ParallelRunner&) = delete;
  ParallelRunner& operator=(const ParallelRunner&) = delete;

  // Counts the caller's thread as busy while it lives.
  class Batch {
   public:
    explicit Batch(ParallelRunner& runner) : runner_(runner) { ++runner_.busy_; }
    ~Batch() { --runner_.busy_; }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

   private:
    ParallelRunner& runner_;
  };

  int threads() const { return threads_; }

  // Calls body(item, slot) once for each item in [0, items), in any order. `slot` is below
  // threads() and below `items`, and differs between calls that run at the same time. The calling
  // thread is slot 0 and works too. Rethrows what a body has thrown, after the others are done.
  // Allocates nothing.
  template <typename Body>
  void ForEach(int items, const Body& body) {
    if (threads_ == 1 || items < 2 || !HasIdleCore()) {
      for (int item = 0; item < items; ++item) body(item, 0);
      return;
    }
    Job job;
    job.items = items;
    job.context = &body;
    job.call = [](const void* context, int item, int slot) {
      (*static_cast<const Body*>(context))(item, slot);
    };
    Run(job);
  }

 private:
  struct Job {
    void (*call)(const void* context, int item, int slot) = nullptr;
    const void* context = nullptr;
    int items = 0;
    std::atomic<int> next{0};
    // Guarded by the runner's mutex.
    int joined = 0;   // helpers that ever joined: the last one's slot
    int working = 0;  // helpers that have not left
    std::exception_ptr error;
    CondVar left;
    Job* following = nullptr;
  };

  bool HasIdleCore() const {
    if (busy_.load(std::memory_order_relaxed) >= cores_) return false;
    const TurnEnd* const end = TurnEnd::OfThisThread();
    return end == nullptr || end->HasIdleCore();
  }
  // Ends the helpers.
  void Stop();
  void Run(Job& job);
  void Help();
  // Works until no item is left or, for a helper, until a core is wanted elsewhere.
  void Work(Job& job, int slot);
  Job* OpenJob() SRU_LOCKS_REQUIRED(mutex_);

  const int threads_;
  const int cores_;
  std::atomic<int> busy_{0};

  Mutex mutex_;
  CondVar wake_;
  Job* jobs_ SRU_GUARDED_BY(mutex_) = nullptr;  // those that helpers may join
  bool stopping_ SRU_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> helpers_;
};

}  // namespace sru::kernels::cpu

#endif  // SRU_KERNELS_CPU_BASE_PARALLEL_RUNNER_H_
