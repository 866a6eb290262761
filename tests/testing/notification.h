// Something that happens once and is waited for. absl::Notification does the same but is invisible
// to the thread sanitizer (base/mutex.h). Thread-safe.
#ifndef SRU_TESTS_TESTING_NOTIFICATION_H_
#define SRU_TESTS_TESTING_NOTIFICATION_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::testing {

class Notification {
 public:
  void Notify() {
    MutexLock lock(&mutex_);
    notified_ = true;
    changed_.SignalAll();
  }
  bool HasBeenNotified() {
    MutexLock lock(&mutex_);
    return notified_;
  }
  // False when it takes longer than any test should.
  bool Wait() {
    return WaitUntil(&mutex_, &changed_, absl::Seconds(60),
                     [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return notified_; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_NOTIFICATION_H_
