// Limits the log lines that callers can cause, to a number per second (or another interval); the
// rest is only counted.
#ifndef SRU_SERVER_BASE_RATE_LIMIT_H_
#define SRU_SERVER_BASE_RATE_LIMIT_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::server {

// Thread-safe.
class RateLimit {
 public:
  // 0 = no limit.
  explicit RateLimit(int max_per_interval, absl::Duration interval = absl::Seconds(1))
      : max_per_interval_(max_per_interval), interval_(interval) {}

  // Returns whether one more may pass in the interval that `now` is in. If so, sets `*refused` to
  // the number refused since the last one that passed.
  bool Take(absl::Time now, int64_t* refused) {
    MutexLock lock(&mutex_);
    absl::Duration ignored;
    const int64_t index = absl::IDivDuration(now - absl::UnixEpoch(), interval_, &ignored);
    if (index != index_) {
      index_ = index;
      taken_ = 0;
    }
    if (max_per_interval_ > 0 && taken_ >= max_per_interval_) {
      ++refused_;
      ++total_refused_;
      return false;
    }
    ++taken_;
    *refused = refused_;
    refused_ = 0;
    return true;
  }

  int64_t total_refused() const {
    MutexLock lock(&mutex_);
    return total_refused_;
  }

 private:
  const int max_per_interval_;
  const absl::Duration interval_;
  mutable Mutex mutex_;
  int64_t index_ ABSL_GUARDED_BY(mutex_) = 0;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t total_refused_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_RATE_LIMIT_H_
