// A mutex and a condition variable that clang's thread-safety analysis and the thread sanitizer
// both understand. absl::Mutex is invisible to the sanitizer unless Abseil itself was built with
// it, and the distributions' Abseil was not: it would report every guarded access as a race.
#ifndef SRU_BASE_MUTEX_H_
#define SRU_BASE_MUTEX_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"

namespace sru {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  // Tries for about a microsecond before it sleeps: what these mutexes guard is short, and to sleep
  // and be woken costs several times as much.
  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    for (int i = 0; i < kTries; ++i) {
      if (mutex_.try_lock()) return;
      for (int pause = 0; pause < kPauses; ++pause) Pause();
    }
    mutex_.lock();
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }

 private:
  friend class CondVar;

  static constexpr int kTries = 32;
  static constexpr int kPauses = 4;

  // Lets the other hardware thread of the core run meanwhile.
  static void Pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(*mutex) {
    mutex_.Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waiting may end without a signal: the caller checks what it waits for in a loop.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }

  // Waits for `timeout` at most; any duration is taken, infinite and negative ones too.
  void WaitFor(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (timeout <= absl::ZeroDuration()) return;
    if (timeout == absl::InfiniteDuration()) return Wait(mutex);
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    // Bounded, since the standard library adds it to the time without a check for overflow.
    condition_.wait_for(lock, absl::ToChronoNanoseconds(std::min(timeout, absl::Hours(24))));
    lock.release();
  }

  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

// Waits until `done()`, which is called with `mutex` held and which `changed` is signalled for;
// false when it is not within `timeout`. By a clock that nobody sets.
template <typename Done>
bool WaitUntil(Mutex* mutex, CondVar* changed, absl::Duration timeout, const Done& done) {
  const std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
  MutexLock lock(mutex);
  while (!done()) {
    const absl::Duration passed = absl::FromChrono(std::chrono::steady_clock::now() - start);
    if (passed >= timeout) return false;
    changed->WaitFor(mutex, timeout - passed);
  }
  return true;
}

}  // namespace sru

#endif  // SRU_BASE_MUTEX_H_
