// SideThreads: run what would hold up the connections of a loop or the next batch of a worker, such
// as the parsing of a message of many megabytes.
//
// Each key has a queue of its own, and the keys take turns: a job waits for at most one job of each
// other key on each thread, however many jobs of those keys wait.
//
// Thread-safe.
#ifndef SRU_SERVER_BASE_SIDE_THREADS_H_
#define SRU_SERVER_BASE_SIDE_THREADS_H_

#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "server/base/cores.h"

namespace sru::server {

class SideThreads {
 public:
  explicit SideThreads(int count) {
    try {
      for (int i = 0; i < count; ++i) threads_.emplace_back([this] { Run(); });
    } catch (...) {  // the system has no more threads
      Stop();
      throw;
    }
  }
  ~SideThreads() { Stop(); }
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  // Tells apart whose jobs they are. Keys are only compared: if two are equal by chance, those two
  // share their turns.
  static size_t KeyOf(const void* whose) { return std::hash<const void*>{}(whose); }

  // Nothing happens after Stop().
  void Post(size_t key, std::function<void()> job) {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    jobs_.emplace(key, std::move(job));
    changed_.Signal();
  }
  // A job of nobody in particular.
  void Post(std::function<void()> job) { Post(KeyOf(nullptr), std::move(job)); }

  // Runs what was posted before, and ends the threads.
  void Stop() {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

 private:
  void Run() {
    NameThisThread("sru_side");
    for (;;) {
      std::function<void()> job;
      {
        MutexLock lock(&mutex_);
        while (jobs_.empty() && !stopping_) changed_.Wait(&mutex_);
        if (jobs_.empty()) return;
        job = TakeNext();
      }
      // Only a lack of memory throws here. What it concerned is left to its deadline.
      try {
        job();
      } catch (const std::exception&) {
      }
    }
  }

  // There is a job.
  std::function<void()> TakeNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto next = jobs_.upper_bound(served_);
    if (next == jobs_.end()) next = jobs_.begin();
    served_ = next->first;
    std::function<void()> job = std::move(next->second);
    jobs_.erase(next);
    return job;
  }

  Mutex mutex_;
  CondVar changed_;
  // By key; those of a key in their order.
  std::multimap<size_t, std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  size_t served_ ABSL_GUARDED_BY(mutex_) = 0;  // the key of the job that was taken last
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // of the owner
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_SIDE_THREADS_H_
