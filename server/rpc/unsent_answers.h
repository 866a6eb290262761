// UnsentAnswers: the calls that were answered but whose answers have not left yet. gRPC keeps an
// answer until its client takes it, for any length of time, and not even the deadline of the call
// ends that. Here, a client that takes longer than `timeout` loses its connection. A drain also
// waits a little for these answers, so that they leave before the connections are closed.
//
// A call is an UnsentAnswer. It calls Add() just before it hands its answer to gRPC, and when gRPC
// is done with it:
//
//   if (unsent.Remove(this)) delete this;   // else UnsentAnswers calls Release()
//
// Both cost a lock for a few instructions and allocate nothing; Remove() waits for a running
// Abandon() of that answer. One thread (Start()) looks when the oldest is due, or every `timeout`
// while there is none; tests call CloseLate() instead.
#ifndef SRU_SERVER_RPC_UNSENT_ANSWERS_H_
#define SRU_SERVER_RPC_UNSENT_ANSWERS_H_

#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/base/clock.h"

namespace sru::server::rpc {

class UnsentAnswer {
 public:
  // Ends what keeps the answer: closes the connection, or cancels the call. That leads to Remove()
  // of this answer and of others, on another thread or from within, so it must be the last thing
  // that this does.
  virtual void Abandon() = 0;
  // Called after an Abandon() within which gRPC finished the call.
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
  // With an infinite `timeout`, no connection is closed. `clock` must outlive this object.
  UnsentAnswers(absl::Duration timeout, const Clock* clock) : timeout_(timeout), clock_(*clock) {}
  UnsentAnswers(const UnsentAnswers&) = delete;
  UnsentAnswers& operator=(const UnsentAnswers&) = delete;
  ~UnsentAnswers();

  // Starts the thread, unless the timeout is infinite.
  void Start();
  void Stop();

  void Add(UnsentAnswer* answer);
  // Returns whether the caller may delete the answer now; if not, Release() will be called.
  [[nodiscard]] bool Remove(UnsentAnswer* answer);

  // Abandons each answer that is late at Clock::Now(), once. Returns when to look again.
  absl::Time CloseLate();

  // Waits until none is left; returns false if some are left after `timeout`.
  bool WaitUntilNone(absl::Duration timeout);

  // The number of answers that have not left, and of those given up since the start.
  int64_t count() const;
  int64_t abandoned() const { return abandoned_.load(std::memory_order_relaxed); }

 private:
  void Unlink(UnsentAnswer* answer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  const absl::Duration timeout_;
  const Clock& clock_;
  std::thread thread_;  // of whoever starts and stops it
  std::atomic<int64_t> abandoned_{0};

  mutable Mutex mutex_;
  CondVar none_;
  CondVar abandoned_changed_;
  CondVar stop_changed_;
  // The list, in the order in which they are due.
  UnsentAnswer* oldest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  UnsentAnswer* newest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // Answers in the list, and those that were abandoned but not removed yet.
  int64_t count_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread::id abandoner_ ABSL_GUARDED_BY(mutex_);  // the thread that called Abandon() last
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_UNSENT_ANSWERS_H_
