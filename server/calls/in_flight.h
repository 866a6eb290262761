// Counts calls that have no answer yet, and lets a drain wait for the last one. Thread-safe. One
// atomic addition per change.
#ifndef SRU_SERVER_CALLS_IN_FLIGHT_H_
#define SRU_SERVER_CALLS_IN_FLIGHT_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::server::calls {

class InFlight {
 public:
  void Enter() { count_.fetch_add(1, std::memory_order_relaxed); }
  void Leave() {
    // WaitUntilNone() writes and reads these in the opposite order, so that one of the two sees the
    // other's write.
    if (count_.fetch_sub(1) > 1 || !waiting_.load()) return;
    MutexLock lock(&mutex_);
    none_.SignalAll();
  }
  int64_t count() const { return count_.load(std::memory_order_relaxed); }

  // Returns false if calls are still in flight after `timeout`.
  bool WaitUntilNone(absl::Duration timeout) {
    waiting_.store(true);
    return WaitUntil(&mutex_, &none_, timeout, [this] { return count_.load() == 0; });
  }

 private:
  std::atomic<int64_t> count_{0};
  std::atomic<bool> waiting_{false};  // set by the first wait, never cleared
  Mutex mutex_;                       // for none_ only: what it waits for is atomic
  CondVar none_;
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_IN_FLIGHT_H_
