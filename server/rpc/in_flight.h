// Counts calls that have no answer yet, and lets a drain wait for the last one. Thread-safe.
#ifndef SRU_SERVER_RPC_IN_FLIGHT_H_
#define SRU_SERVER_RPC_IN_FLIGHT_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace sru::server {

class InFlight {
 public:
  void Enter() {
    MutexLock lock(&mutex_);
    ++count_;
  }
  void Leave() {
    MutexLock lock(&mutex_);
    if (--count_ == 0) none_.SignalAll();
  }
  int64_t count() const {
    MutexLock lock(&mutex_);
    return count_;
  }
  // False when calls were still in flight at `deadline`.
  bool WaitUntilNone(absl::Time deadline) const {
    MutexLock lock(&mutex_);
    while (count_ > 0) {
      const absl::Duration left = deadline - absl::Now();
      if (left <= absl::ZeroDuration()) return false;
      none_.WaitFor(&mutex_, left);
    }
    return true;
  }

 private:
  mutable Mutex mutex_;
  mutable CondVar none_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_IN_FLIGHT_H_
