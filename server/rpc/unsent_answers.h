// UnsentAnswers: the calls that were answered and whose answers have not left yet. gRPC keeps an
// answer for as long as its client does not take it, without a bound on time, and no deadline of a
// call ends that: here a client that takes longer than `timeout` loses its connection. Also what a
// drain waits for, a little, so that answers leave before the connections are closed.
//
// A call is an UnsentAnswer. It calls Add() just before it hands its answer to gRPC, and when gRPC
// is done with it:
//
//   if (unsent.Remove(this)) delete this;   // else UnsentAnswers calls Release()
//
// Both cost a lock for a few instructions and allocate nothing; Remove() waits for a running
// Abandon() of that answer. One thread (Start()) looks when the
// oldest is due, at most every `timeout` while there is none; tests call CloseLate() instead.
#ifndef SRU_SERVER_RPC_UNSENT_ANSWERS_H_
#define SRU_SERVER_RPC_UNSENT_ANSWERS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/base/mutex.h"

namespace sru::server {

class UnsentAnswer {
 public:
  // Ends what keeps the answer: closes the connection, or cancels the call. Brings about Remove()
  // of this answer and of others, on another thread or from within: so what it does last is to end
  // it.
  virtual void Abandon() = 0;
  // Called after an Abandon() from within which gRPC was done with the call.
  virtual void Release() = 0;

 protected:
  ~UnsentAnswer() = default;

 private:
  friend class UnsentAnswers;
  // Guarded by the mutex of the UnsentAnswers that it is in.
  UnsentAnswer* previous_ = nullptr;
  UnsentAnswer* next_ = nullptr;
  absl::Time due_;
  bool listed_ = false;
  bool abandoning_ = false;
  bool removed_ = false;  // while abandoning_
};

// Thread-safe. Must be empty when it is destroyed.
class UnsentAnswers {
 public:
  // An infinite `timeout`: nobody is closed. `clock` must outlive it.
  UnsentAnswers(absl::Duration timeout, const Clock* clock) : timeout_(timeout), clock_(*clock) {}
  UnsentAnswers(const UnsentAnswers&) = delete;
  UnsentAnswers& operator=(const UnsentAnswers&) = delete;
  ~UnsentAnswers();

  // Starts the thread, unless the timeout is infinite.
  void Start();
  void Stop();

  void Add(UnsentAnswer* answer);
  // Whether the caller may delete it now; if not, Release() will be called.
  [[nodiscard]] bool Remove(UnsentAnswer* answer);

  // Abandons what is late at Clock::Now(), each once. Returns when to look again.
  absl::Time CloseLate();

  // Waits until none is left; false when some are after `timeout`.
  bool WaitUntilNone(absl::Duration timeout);

  // Answers that have not left, and how many were given up since the start.
  int64_t count() const;
  int64_t abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

 private:
  void Unlink(UnsentAnswer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  const absl::Duration timeout_;
  const Clock& clock_;
  std::thread thread_;
  std::atomic<int64_t> abandoned_{0};

  mutable Mutex mutex_;
  CondVar none_;
  CondVar abandoned_changed_;
  CondVar stop_changed_;
  // The list, in the order in which they are due.
  UnsentAnswer* oldest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  UnsentAnswer* newest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;  // of the list and of what was abandoned and is there
  std::thread::id abandoner_ ABSL_GUARDED_BY(mutex_);  // the thread that called Abandon() last
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sru::server

#endif  // SRU_SERVER_RPC_UNSENT_ANSWERS_H_
