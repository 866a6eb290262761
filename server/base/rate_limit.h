// How many log lines strangers can cause: at most so many per second (or another time), the rest is
// only counted.
#ifndef SRU_SERVER_BASE_RATE_LIMIT_H_
#define SRU_SERVER_BASE_RATE_LIMIT_H_

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/mutex.h"

namespace sru::server {

// Thread-safe.
class RateLimit {
 public:
  // 0 = no limit.
  explicit RateLimit(int max_per_interval, absl::Duration interval = absl::Seconds(1))
      : max_per_interval_(max_per_interval), interval_(interval) {}

  // Whether one more may pass in the second (interval) of `now`. `*refused` is set, when it may, to
  // how many were refused since the last that passed.
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
