// A clock that only a test moves. Thread-safe.
#ifndef SRU_TESTS_TESTING_FAKE_CLOCK_H_
#define SRU_TESTS_TESTING_FAKE_CLOCK_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/base/clock.h"

namespace sru::server {

class FakeClock : public Clock {
 public:
  absl::Time Now() const override {
    MutexLock lock(&mutex_);
    return now_;
  }

  void Advance(absl::Duration by) {
    MutexLock lock(&mutex_);
    now_ += by;
  }

  void Set(absl::Time now) {
    MutexLock lock(&mutex_);
    now_ = now;
  }

 private:
  mutable Mutex mutex_;
  absl::Time now_ ABSL_GUARDED_BY(mutex_) = absl::FromUnixSeconds(1000);
};

}  // namespace sru::server

#endif  // SRU_TESTS_TESTING_FAKE_CLOCK_H_
