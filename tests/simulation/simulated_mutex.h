// What base/mutex.h declares, for fibers in place of threads. Every source of the simulation is
// compiled with this header ahead of all others (-include), whose guard keeps base/mutex.h out.
#ifndef SRU_BASE_MUTEX_H_
#define SRU_BASE_MUTEX_H_

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "tests/simulation/fibers.h"

namespace sru {
namespace simulation {

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    while (held_) Fibers::Current()->Yield(/*always=*/true);
    held_ = true;
  }
  // Another fiber may run between any two critical sections.
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    held_ = false;
    if (Fibers* const fibers = Fibers::Current(); fibers != nullptr) fibers->Yield();
  }

 private:
  friend class CondVar;
  bool held_ = false;
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

class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  void Wait(Mutex* mutex) { WaitFor(mutex, absl::InfiniteDuration()); }
  void WaitFor(Mutex* mutex, absl::Duration timeout) {
    if (timeout <= absl::ZeroDuration()) return;
    mutex->held_ = false;
    Fibers::Current()->Wait(this, Fibers::Current()->now() + timeout);
    while (mutex->held_) Fibers::Current()->Yield(/*always=*/true);
    mutex->held_ = true;
  }
  void Signal() { Wake(/*all=*/false); }
  void SignalAll() { Wake(/*all=*/true); }

 private:
  void Wake(bool all) {
    if (Fibers* const fibers = Fibers::Current(); fibers != nullptr) fibers->Signal(this, all);
  }
};

}  // namespace simulation

// Names only: other libraries of the program have classes of these names.
using simulation::CondVar;
using simulation::Mutex;
using simulation::MutexLock;

}  // namespace sru

#endif  // SRU_BASE_MUTEX_H_
