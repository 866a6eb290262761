// Limits the log lines that callers can cause, to a number per second (or another interval); the
// rest is only counted. One caller can use up half of it, so that others' lines are among them.
#ifndef SRU_SERVER_BASE_RATE_LIMIT_H_
#define SRU_SERVER_BASE_RATE_LIMIT_H_

#include <array>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
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
    return TakeOf(now, nullptr, refused);
  }
  // Does the same for a caller, such as an address. Callers whose hashes agree count as one.
  bool Take(absl::Time now, absl::string_view caller, int64_t* refused) {
    return Take(now, IndexOf(caller), refused);
  }
  // Does the same for one of 256 kinds, which share nothing.
  bool Take(absl::Time now, size_t kind, int64_t* refused) {
    MutexLock lock(&mutex_);
    return TakeOf(now, &callers_[kind % kCounts], refused);
  }
  // Whether two callers count as one in this process, whose seed of hashes is its own.
  static bool CountAsOne(absl::string_view a, absl::string_view b) {
    return IndexOf(a) == IndexOf(b);
  }

  // The next one that passes has these, too, in its `*refused`.
  void GiveBack(int64_t refused) {
    MutexLock lock(&mutex_);
    refused_ += refused;
  }

  int64_t total_refused() const {
    MutexLock lock(&mutex_);
    return total_refused_;
  }

 private:
  static constexpr size_t kCounts = 256;

  static size_t IndexOf(absl::string_view caller) { return absl::HashOf(caller) % kCounts; }
  bool TakeOf(absl::Time now, int* caller, int64_t* refused) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    absl::Duration ignored;
    const int64_t index = absl::IDivDuration(now - absl::UnixEpoch(), interval_, &ignored);
    if (index != index_) {
      index_ = index;
      taken_ = 0;
      callers_ = {};
    }
    const bool has_share = caller == nullptr || *caller < (max_per_interval_ + 1) / 2;
    if (max_per_interval_ > 0 && (taken_ >= max_per_interval_ || !has_share)) {
      ++refused_;
      ++total_refused_;
      return false;
    }
    ++taken_;
    if (caller != nullptr) ++*caller;
    *refused = refused_;
    refused_ = 0;
    return true;
  }

  const int max_per_interval_;
  const absl::Duration interval_;
  mutable Mutex mutex_;
  int64_t index_ ABSL_GUARDED_BY(mutex_) = 0;
  int taken_ ABSL_GUARDED_BY(mutex_) = 0;
  std::array<int, kCounts> callers_
      ABSL_GUARDED_BY(mutex_) = {};  // what each has taken, by its hash
  int64_t refused_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t total_refused_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_RATE_LIMIT_H_
