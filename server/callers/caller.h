// Caller: who calls, from a call's headers on, whatever door the call comes through: by the name of
// a token, else by the subject of a client certificate, else by an address, else "anonymous". It
// has the limits that hold for its calls, and what they have taken of them.
//
//   Lease lease;
//   // By the headers: its place among the calls in flight.
//   absl::Status status = lease.Enter(caller, calls::MethodId::kClassify);
//   status = caller->Charge(120);  // tokens, before they are computed
//   caller->OnEnd(status, 120);
//
// Tokens a second. A caller has a balance of tokens, which grows by `tokens_per_second` up to
// `burst`. A call begins while the balance is above zero, whatever it will cost, and may overdraw
// it: so the headers are enough to refuse a call, a call larger than the burst passes, and what is
// generated is charged as it comes. Retry delay = the time until the balance is above zero again.
//
// Thread-safe.
#ifndef SRU_SERVER_CALLERS_CALLER_H_
#define SRU_SERVER_CALLERS_CALLER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/base/clock.h"
#include "server/batching/queue/flow.h"
#include "server/batching/queue/order_tree.h"
#include "server/callers/caller_limits.h"
#include "server/calls/byte_budget.h"
#include "server/calls/method_info.h"

namespace sru::server::callers {

// Totals of the calls of one caller, or of several.
struct CallerCounts {
  std::atomic<int64_t> calls{0};    // that have ended
  std::atomic<int64_t> tokens{0};   // that they computed
  std::atomic<int64_t> refused{0};  // that ended with RESOURCE_EXHAUSTED or PERMISSION_DENIED
};

class Caller : public batching::Flow {
 public:
  // `id` tells callers apart, `name` is for people and not unique. `proven`: by a token or a
  // certificate. Calls are counted in `others` until CountApart(). The clock must outlive it.
  Caller(std::string id, std::string name, bool proven, CallerLimits limits,
         std::shared_ptr<CallerCounts> others, const Clock* clock);

  const std::string& name() const { return name_; }
  bool is_proven() const { return proven_; }

  // Takes effect at once; what is in flight stays.
  void SetLimits(CallerLimits limits);

  // The answer that Lease::Enter() would give: OK for lookups. kPermissionDenied: the method is
  // none of the caller's; kResourceExhausted: it is over a limit, and the status may say when to
  // come back (server/base/retry.h).
  absl::Status Check(calls::MethodId method) const;
  // kPermissionDenied for a priority or a model that the caller may not use; names the field.
  absl::Status CheckPriority(batching::Priority priority) const;
  batching::Priority highest_priority() const;
  absl::Status CheckModel(absl::string_view model) const;

  // Takes the tokens of work that is about to be submitted; kResourceExhausted unless the balance
  // is above zero.
  absl::Status Charge(int64_t tokens);
  // Takes what turned out to be needed besides; gives back if `tokens` is negative.
  void Settle(int64_t tokens);

  // The share of the memory of all calls that its own hold.
  calls::ByteShare& memory() { return memory_; }

  // Counts a call.
  void OnEnd(const absl::Status& status, int64_t tokens);

  // The headers that OpenAI's clients read, x-ratelimit-limit-requests and so on; none without such
  // limits. Requests are calls in flight, tokens the balance.
  std::vector<std::pair<std::string, std::string>> RateLimitHeaders() const;

  // Counts in counts() from now on, or in those of others again.
  void CountApart(bool apart);
  const CallerCounts& counts() const { return own_; }
  int64_t in_flight() const;
  absl::Time last_seen() const { return absl::FromUnixMicros(last_seen_.load()); }
  void OnSeen() { last_seen_.store(absl::ToUnixMicros(clock_.Now()), std::memory_order_relaxed); }
  // Calls and tokens since the last time that this was asked: a measure of how busy it is.
  int64_t TakeActivity() { return activity_.exchange(0, std::memory_order_relaxed); }

 private:
  friend class Lease;

  bool LimitsTokens() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return limits_.tokens_per_second > 0;
  }
  double Balance(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Add(double tokens) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckBalance() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckLocked(calls::MethodId method) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Enter(calls::MethodId method);
  void Leave(bool is_stream);

  const std::string name_;
  const bool proven_;
  const Clock& clock_;
  const std::shared_ptr<CallerCounts> others_;
  CallerCounts own_;
  std::atomic<CallerCounts*> counts_in_;
  std::atomic<int64_t> activity_{0};
  std::atomic<int64_t> last_seen_{0};
  calls::ByteShare memory_;

  mutable Mutex mutex_;
  CallerLimits limits_ ABSL_GUARDED_BY(mutex_);
  int64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t streams_ ABSL_GUARDED_BY(mutex_) = 0;
  double balance_ ABSL_GUARDED_BY(mutex_) = 0;  // at `balance_at_`
  absl::Time balance_at_ ABSL_GUARDED_BY(mutex_);
};

using CallerPtr = std::shared_ptr<Caller>;

// The place of one call among those of its caller, from its headers until its answer.
class Lease {
 public:
  Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() { Leave(); }

  // Once. Takes no place if it says why the call does not go on, nor for a null caller.
  absl::Status Enter(CallerPtr caller, calls::MethodId method);
  void Leave();

 private:
  CallerPtr caller_;  // null: it has no place
  bool is_stream_ = false;
};

}  // namespace sru::server::callers

#endif  // SRU_SERVER_CALLERS_CALLER_H_
