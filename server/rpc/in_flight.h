// Counts calls that have no answer yet, and lets a drain wait for the last one. Thread-safe.
#ifndef SRU_SERVER_RPC_IN_FLIGHT_H_
#define SRU_SERVER_RPC_IN_FLIGHT_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace sru::server {

class InFlight {
 public:
  void Enter() {
    absl::MutexLock lock(&mutex_);
    ++count_;
  }
  void Leave() {
    absl::MutexLock lock(&mutex_);
    --count_;
  }
  int64_t count() const {
    absl::MutexLock lock(&mutex_);
    return count_;
  }
  // False when calls were still in flight at `deadline`.
  bool WaitUntilNone(absl::Time deadline) const {
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithDeadline(absl::Condition(
                                        +[](const int64_t* count) { return *count == 0; }, &count_),
                                    deadline);
  }

 private:
  mutable absl::Mutex mutex_;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_IN_FLIGHT_H_
