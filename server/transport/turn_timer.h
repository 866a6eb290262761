// TurnTimer: how much processor time the long turns of a loop take. Wall-clock time would count the
// work of other programs, too.
//
//   timer.Begin();
//   ...                                          // the turn
//   if (const auto used = timer.End()) ...       // it was a long one
//
// The clock of a thread's processor time is a call of the system, which takes half a microsecond; a
// turn may take little more. So it is read once for many short turns, and a long turn counts with
// what came since: kMostBefore too much at most.
//
// Used by one thread, whose time it tells.
#ifndef SRU_SERVER_TRANSPORT_TURN_TIMER_H_
#define SRU_SERVER_TRANSPORT_TURN_TIMER_H_

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/transport/timer_set.h"

namespace sru::server::transport {

class TurnTimer {
 public:
  using Duration = SteadyTime::duration;

  static constexpr Duration kLongTurn = std::chrono::microseconds(250);
  static constexpr Duration kMostBefore = std::chrono::microseconds(100);

  // Tests give clocks of their own.
  explicit TurnTimer(std::function<SteadyTime()> now = nullptr,
                     std::function<Duration()> thread_time = nullptr)
      : now_(std::move(now)), thread_time_(std::move(thread_time)) {}

  void Begin() {
    began_ = Now();
    if (before_ < kMostBefore) return;
    mark_ = ThreadTime();
    before_ = Duration::zero();
  }

  // The processor time of the turn, if it was at least kLongTurn long.
  std::optional<Duration> End() {
    const Duration passed = Now() - began_;
    if (passed < kLongTurn) {
      before_ += passed + kBetweenTurns;
      return std::nullopt;
    }
    const Duration used = ThreadTime() - mark_;
    before_ = kMostBefore;  // what comes between this turn and the next is not known
    return std::min(used, passed);
  }

 private:
  // To wait for the next turn takes that much, or less.
  static constexpr Duration kBetweenTurns = std::chrono::microseconds(5);

  SteadyTime Now() const { return now_ == nullptr ? ClockNow() : now_(); }
  Duration ThreadTime() const {
    if (thread_time_ != nullptr) return thread_time_();
    return absl::ToChronoNanoseconds(server::ThreadTime());
  }

  const std::function<SteadyTime()> now_;
  const std::function<Duration()> thread_time_;
  SteadyTime began_;
  Duration mark_{};                // of the thread's time
  Duration before_ = kMostBefore;  // what turns have taken since, at most
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_TURN_TIMER_H_
