// OpenStreams: the calls that stay open while messages go back and forth. It bounds how many there
// are, in all and of one caller, and tells them when the server drains. Thread-safe.
//
//   if (absl::Status status = streams.Add(this, caller->id()); !status.ok()) return refused;
//   ...
//   streams.Leave(this);   // it has ended
//   ...
//   streams.Remove(this);
#ifndef SRU_SERVER_CALLS_KINDS_OPEN_STREAMS_H_
#define SRU_SERVER_CALLS_KINDS_OPEN_STREAMS_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/mutex.h"

namespace sru::server::calls {

class OpenStream {
 public:
  // The server drains: the stream should end as soon as what it has begun is answered. Called once,
  // on another thread, which holds a lock of OpenStreams: it must not add or remove streams.
  virtual void OnDrain() = 0;

 protected:
  ~OpenStream() = default;

 private:
  friend class OpenStreams;
  // Guarded by the mutex of the OpenStreams that it is in.
  OpenStream* previous_ = nullptr;
  OpenStream* next_ = nullptr;
  bool listed_ = false;
  std::atomic<bool> counted_{false};
  std::string caller_;  // set before it is counted
};

// Must be empty when it is destroyed.
class OpenStreams {
 public:
  // One caller has at most a quarter of the places, unless there are so few that it would mean
  // nothing.
  explicit OpenStreams(int limit)
      : limit_(limit), share_(limit < kLeastShared ? limit : (limit + 3) / 4) {}
  OpenStreams(const OpenStreams&) = delete;
  OpenStreams& operator=(const OpenStreams&) = delete;

  static constexpr int kLeastShared = 8;

  // A refusal (reject_reason.h): kStreams beyond the limit or the caller's share, kDraining after
  // Drain(). `caller` is its id; "" for one who has none, and so no share.
  absl::Status Add(OpenStream* stream, absl::string_view caller);
  // Gives the stream's place to another one. It may do so in its OnDrain().
  void Leave(OpenStream* stream);
  // Does nothing for a stream that was not added. Waits for a running OnDrain().
  void Remove(OpenStream* stream);

  // Refuses new streams from now on and calls OnDrain() of those that are open.
  void Drain();
  bool draining() const { return draining_.load(std::memory_order_relaxed); }

  int limit() const { return limit_; }
  // Those that have not left.
  int64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  // False if the caller has its share.
  bool TakeShare(absl::string_view caller);

  const int limit_;
  const int share_;
  Mutex mutex_;
  OpenStream* first_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::atomic<int64_t> count_{0};      // grows under mutex_ only
  std::atomic<bool> draining_{false};  // changes under mutex_ only

  Mutex caller_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  absl::flat_hash_map<std::string, int> by_caller_ ABSL_GUARDED_BY(caller_mutex_);
};

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_OPEN_STREAMS_H_
