// What has arrived on connections and is still held, byte by byte, for transports that are told
// when bytes are let go. Keeps the sum under a limit by closing connections: first the one that has
// held most for a while. gRPC's own quota has everybody wait once it is used up, and refuses calls
// and connections for seconds afterwards; the limit lies below it, so that it never is.
//
// Not seen is what a layer in between copies, as TLS does; connection_guard.h estimates that.
//
// Thread-safe.
#ifndef SRU_SERVER_TRANSPORT_RECEIVE_LEDGER_H_
#define SRU_SERVER_TRANSPORT_RECEIVE_LEDGER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::server::transport {

class ReceiveLedger : public std::enable_shared_from_this<ReceiveLedger> {
 public:
  struct Options {
    int64_t limit_bytes = 0;
    // Bytes that have been there for as long are why a connection is closed, before all others: a
    // client that uploads at full speed holds much, but nothing for long.
    absl::Duration held_for = absl::Milliseconds(300);
    // A clock that never goes back.
    std::function<absl::Duration()> now;
    // Runs for each connection that is closed, one at a time; must not use the ledger.
    std::function<void(const std::string& peer, int64_t held_bytes)> on_closed;
  };

  // One connection's part. Lives as long as the connection, and as anything that came on it.
  class Account : public std::enable_shared_from_this<Account> {
   public:
    ~Account();
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;

    // Before the first Add(): how to end the connection, on any thread.
    void set_close(std::function<void()> close) { close_ = std::move(close); }

    // Bytes have arrived; may close connections, this one too.
    void Add(int64_t bytes);
    // As many are gone.
    void Free(int64_t bytes);

   private:
    friend class ReceiveLedger;
    Account(std::shared_ptr<ReceiveLedger> ledger, std::string peer)
        : ledger_(std::move(ledger)), peer_(std::move(peer)) {}

    const std::shared_ptr<ReceiveLedger> ledger_;
    const std::string peer_;
    std::function<void()> close_;  // constant from the first Add() on

    // Guarded by the ledger's mutex. Bytes count from the connection's beginning.
    int64_t received_ = 0;
    int64_t freed_ = 0;
    bool closing_ = false;
    absl::Duration received_last_ = -absl::InfiniteDuration();
    // What had been received at a moment, and at the one before, at least `held_for` earlier.
    absl::Duration marked_at_ = -absl::InfiniteDuration();
    int64_t received_at_mark_ = 0;
    int64_t received_before_ = 0;
  };

  static std::shared_ptr<ReceiveLedger> Create(Options options);
  ReceiveLedger(const ReceiveLedger&) = delete;
  ReceiveLedger& operator=(const ReceiveLedger&) = delete;

  std::shared_ptr<Account> Open(std::string peer);

  // Of the connections that are not being closed.
  int64_t held_bytes() const;

  // From its return on, on_closed does not run any more.
  void StopTelling();

 private:
  explicit ReceiveLedger(Options options) : options_(std::move(options)) {}

  // What `account` has held for long, its oldest bytes being the first that are let go.
  int64_t HeldForLong(const Account& account, absl::Duration now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks connections as closing until the sum is below the limit again.
  std::vector<std::shared_ptr<Account>> Choose(absl::Duration now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Tell(const std::string& peer, int64_t held);

  const Options options_;
  mutable Mutex mutex_;
  int64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
  std::unordered_set<Account*> accounts_ ABSL_GUARDED_BY(mutex_);
  Mutex telling_mutex_;  // held while on_closed runs; never with the other
  bool tells_ ABSL_GUARDED_BY(telling_mutex_) = true;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_RECEIVE_LEDGER_H_
