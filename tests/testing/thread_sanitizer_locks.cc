// Shows the thread sanitizer the locks of the distribution's Abseil, which is built without it:
// gRPC hands our data from thread to thread with them, too, and each hand-over would be reported as
// a race. A test of a whole server that is built with the thread sanitizer is linked with this. The
// functions stand in front of the library's of the same names, for gRPC and for the library itself,
// call those, and tell the sanitizer what they order.
//
// Of a lock only the order of its sections is told, so that a race between sections of different
// locks is still found.
#include <sanitizer/tsan_interface.h>

#include <cerrno>

#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "tests/testing/function_in_front.h"

namespace {

using ::sru::testing::FunctionBehind;

// Its graph of locks is guarded by a lock that is not seen.
const bool without_deadlock_detection = [] {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  return true;
}();

// Keeps errno as it is. The first thread of a process that waits behind another for a lock looks up
// the speed of the processor's clock, in a file that may not be there, and gRPC 1.51 takes locks
// between connect() and its look at errno: the connection would fail.
class ErrnoKeeper {
 public:
  ErrnoKeeper() = default;
  ~ErrnoKeeper() { errno = value_; }
  ErrnoKeeper(const ErrnoKeeper&) = delete;
  ErrnoKeeper& operator=(const ErrnoKeeper&) = delete;

 private:
  const int value_ = errno;
};

}  // namespace

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  static const auto behind = FunctionBehind(&Mutex::Lock);
  const ErrnoKeeper keeper;
  behind(this);
  __tsan_acquire(this);
}

bool Mutex::TryLock() {
  static const auto behind = FunctionBehind(&Mutex::TryLock);
  const bool locked = behind(this);
  if (locked) __tsan_acquire(this);
  return locked;
}

void Mutex::Unlock() {
  static const auto behind = FunctionBehind(&Mutex::Unlock);
  __tsan_release(this);
  behind(this);
}

void Mutex::ReaderLock() {
  static const auto behind = FunctionBehind(&Mutex::ReaderLock);
  behind(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static const auto behind = FunctionBehind(&Mutex::ReaderUnlock);
  __tsan_release(this);
  behind(this);
}

void Mutex::Await(const Condition& condition) {
  static const auto behind = FunctionBehind(&Mutex::Await);
  __tsan_release(this);
  behind(this, condition);
  __tsan_acquire(this);
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static const auto behind = FunctionBehind(&Mutex::AwaitWithDeadline);
  __tsan_release(this);
  const bool met = behind(this, condition, deadline);
  __tsan_acquire(this);
  return met;
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto behind = FunctionBehind(&Mutex::AwaitWithTimeout);
  __tsan_release(this);
  const bool met = behind(this, condition, timeout);
  __tsan_acquire(this);
  return met;
}

void Mutex::LockWhen(const Condition& condition) {
  static const auto behind = FunctionBehind(&Mutex::LockWhen);
  behind(this, condition);
  __tsan_acquire(this);
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static const auto behind = FunctionBehind(&Mutex::LockWhenWithDeadline);
  const bool met = behind(this, condition, deadline);
  __tsan_acquire(this);
  return met;
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static const auto behind = FunctionBehind(&Mutex::LockWhenWithTimeout);
  const bool met = behind(this, condition, timeout);
  __tsan_acquire(this);
  return met;
}

void CondVar::Wait(Mutex* mutex) {
  static const auto behind = FunctionBehind(&CondVar::Wait);
  __tsan_release(mutex);
  behind(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto behind = FunctionBehind(&CondVar::WaitWithDeadline);
  __tsan_release(mutex);
  const bool timed_out = behind(this, mutex, deadline);
  __tsan_acquire(mutex);
  return timed_out;
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto behind = FunctionBehind(&CondVar::WaitWithTimeout);
  __tsan_release(mutex);
  const bool timed_out = behind(this, mutex, timeout);
  __tsan_acquire(mutex);
  return timed_out;
}

ABSL_NAMESPACE_END
}  // namespace absl
