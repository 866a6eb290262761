// Holds an absl::Mutex for a scope. absl::MutexLock takes a pointer in older versions of Abseil and
// a reference in newer ones, which deprecate the pointer.
#ifndef SRU_CLIENT_MUTEX_LOCK_H_
#define SRU_CLIENT_MUTEX_LOCK_H_

#include "absl/base/config.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace sru::client {

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
#if defined(ABSL_LTS_RELEASE_VERSION) && ABSL_LTS_RELEASE_VERSION < 20260107
  explicit MutexLock(absl::Mutex* mutex)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS : lock_(mutex) {}
#else
  explicit MutexLock(absl::Mutex* mutex)
      ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) ABSL_NO_THREAD_SAFETY_ANALYSIS : lock_(*mutex) {}
#endif
  ~MutexLock() ABSL_UNLOCK_FUNCTION() ABSL_NO_THREAD_SAFETY_ANALYSIS {}
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  absl::MutexLock lock_;
};

}  // namespace sru::client

#endif  // SRU_CLIENT_MUTEX_LOCK_H_
