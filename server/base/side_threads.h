// SideThreads: run what would hold up the connections of a loop or the next batch of a worker, such as the parsing of a message of many
// megabytes.
//
// Thread-safe.
#ifndef SRU_SERVER_BASE_SIDE_THREADS_H_
#define SRU_SERVER_BASE_SIDE_THREADS_H_

#include <deque>
#include <exception>
#include <functional>
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
    for (int i = 0; i < count; ++i) threads_.emplace_back([this] { Run(); });
  }
  ~SideThreads() { Stop(); }
  SideThreads(const SideThreads&) = delete;
  SideThreads& operator=(const SideThreads&) = delete;

  // Nothing happens after Stop().
  void Post(std::function<void()> job) {
    MutexLock lock(&mutex_);
    if (stopping_) return;
    jobs_.push_back(std::move(job));
    changed_.Signal();
  }

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
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      // Only a lack of memory throws here. What it concerned is left to its deadline.
      try {
        job();
      } catch (const std::exception&) {
      }
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;  // of the owner
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_SIDE_THREADS_H_
