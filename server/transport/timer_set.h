// TimerSet: the times of one loop at which something has to be done. A timer is part of its owner,
// so to set one allocates nothing, and to clear one leaves nothing behind: calls have deadlines of
// seconds and last for microseconds.
//
// Used on the loop's thread.
#ifndef SRU_SERVER_TRANSPORT_TIMER_SET_H_
#define SRU_SERVER_TRANSPORT_TIMER_SET_H_

#include <boost/intrusive/set.hpp>
#include <boost/intrusive/set_hook.hpp>
#include <chrono>

namespace sru::server::transport {

using SteadyTime = std::chrono::steady_clock::time_point;
inline SteadyTime ClockNow() { return std::chrono::steady_clock::now(); }

class Timer : public boost::intrusive::set_base_hook<boost::intrusive::optimize_size<true>> {
 public:
  // Its time has come. It is no longer set, and may be set again or destroyed here.
  virtual void OnTimer(SteadyTime now) = 0;
  // max() while it is not set.
  SteadyTime due() const { return due_; }

 protected:
  ~Timer() = default;

 private:
  friend class TimerSet;
  friend bool operator<(const Timer& a, const Timer& b) { return a.due_ < b.due_; }

  SteadyTime due_ = SteadyTime::max();
};

class TimerSet {
 public:
  TimerSet() = default;
  TimerSet(const TimerSet&) = delete;
  TimerSet& operator=(const TimerSet&) = delete;
  ~TimerSet() { timers_.clear(); }

  // A timer that is set already is moved. max() clears it.
  void Set(Timer* timer, SteadyTime due) {
    if (due == timer->due_) return;
    Clear(timer);
    if (due == SteadyTime::max()) return;
    timer->due_ = due;
    timers_.insert(*timer);
  }
  void Clear(Timer* timer) {
    if (timer->due_ == SteadyTime::max()) return;
    timers_.erase(timers_.iterator_to(*timer));
    timer->due_ = SteadyTime::max();
  }

  // max() if there is none.
  SteadyTime next() const { return timers_.empty() ? SteadyTime::max() : timers_.begin()->due_; }
  void RunDue(SteadyTime now) {
    while (!timers_.empty() && timers_.begin()->due_ <= now) {
      Timer& timer = *timers_.begin();
      Clear(&timer);
      timer.OnTimer(now);
    }
  }

 private:
  boost::intrusive::multiset<Timer> timers_;
};

}  // namespace sru::server::transport

#endif  // SRU_SERVER_TRANSPORT_TIMER_SET_H_
