// Starvation: what happens to sequences for which a step had no memory. They wait until another one
// ends, or kAllocationRetry, and are tried again, one first and twice as many after each success;
// what has not begun waits behind them. When all that could go on waits for memory, the last to
// arrive is preempted: it gives up its own, to be computed again later. A sequence that finds no
// room although no other one of this model holds any gives up after kLoneWait.
//
// Not thread-safe: the scheduler's mutex guards it.
#ifndef SRU_SERVER_BATCHING_STEPS_STARVATION_H_
#define SRU_SERVER_BATCHING_STEPS_STARVATION_H_

#include <cstdint>

#include "absl/time/time.h"
#include "server/batching/steps/places.h"

namespace sru::server::batching {

// When a sequence whose state found no memory asks again.
inline constexpr absl::Duration kAllocationRetry = absl::Milliseconds(10);
inline constexpr absl::Duration kLoneWait = absl::Seconds(1);

class Starvation {
 public:
  // `places` must outlive it.
  explicit Starvation(Places* places) : places_(*places) {}

  // A sequence that has just been returned found no memory. False if it is to end: there will be
  // none.
  bool Starve(ScheduledSequence* s, absl::Time now);
  // Memory has been given back: tries the first `count` again.
  void Revive(int64_t count, absl::Time now);
  // When a worker should call Retry() again; InfiniteFuture() if nothing is starved.
  absl::Time retry_at() const {
    return places_.starved().empty() ? absl::InfiniteFuture() : retry_at_;
  }
  void Retry(absl::Time now);
  // A step has come back in which `tried` sequences were tried again, `in_vain` if one found no
  // memory again. At most `most` are tried together.
  void OnStepEnd(int64_t tried, bool in_vain, int64_t most, absl::Time now);

 private:
  // If everything waits for memory, tries one at once; if that has been tried in vain, makes some.
  void BreakDeadlock(bool tried_in_vain, absl::Time now);

  Places& places_;
  int64_t tries_ = 1;  // starved ones that are tried together
  absl::Time retry_at_ = absl::InfiniteFuture();
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_STARVATION_H_
