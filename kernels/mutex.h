// A mutex and a condition variable that clang's thread-safety analysis understands; those of GCC's
// standard library have no annotations. For kernels/, which does without Abseil; those of the other
// rooms are in base/mutex.h.
#ifndef SRU_KERNELS_MUTEX_H_
#define SRU_KERNELS_MUTEX_H_

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define SRU_THREAD_ANNOTATION(attribute) __attribute__((attribute))
#else
#define SRU_THREAD_ANNOTATION(attribute)
#endif

// Of a member: it is read and written with the mutex held. PT: what it points to is.
#define SRU_GUARDED_BY(mutex) SRU_THREAD_ANNOTATION(guarded_by(mutex))
#define SRU_PT_GUARDED_BY(mutex) SRU_THREAD_ANNOTATION(pt_guarded_by(mutex))
// Of a function: it is called with the mutex held.
#define SRU_LOCKS_REQUIRED(mutex) SRU_THREAD_ANNOTATION(exclusive_locks_required(mutex))

namespace sru::kernels {

class SRU_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() SRU_THREAD_ANNOTATION(acquire_capability()) { mutex_.lock(); }
  void Unlock() SRU_THREAD_ANNOTATION(release_capability()) { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class SRU_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) SRU_THREAD_ANNOTATION(acquire_capability(mutex))
      : mutex_(*mutex) {
    mutex_.Lock();
  }
  ~MutexLock() SRU_THREAD_ANNOTATION(release_capability()) { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waiting may end without a signal: the caller checks what it waits for in a loop.
class CondVar {
 public:
  void Wait(Mutex* mutex) SRU_LOCKS_REQUIRED(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  void Signal() { condition_.notify_one(); }
  void SignalAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_MUTEX_H_
