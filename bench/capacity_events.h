// EventQueue: the time of a simulation, and what happens next in it. Times are nanoseconds from its start.
//
//   EventQueue events;
//   events.At(5000, &handler, 7);     // handler.OnEvent(7) when it is 5 us
//   while (events.RunNext()) {}
//
// Events of the same time happen in the order in which they were added, so that a simulation is the same
// whenever it is repeated. Not thread-safe.
#ifndef SRU_BENCH_CAPACITY_EVENTS_H_
#define SRU_BENCH_CAPACITY_EVENTS_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "server/base/clock.h"

namespace sru::bench {

class EventQueue {
 public:
  class Handler {
   public:
    virtual ~Handler() = default;
    virtual void OnEvent(int64_t argument) = 0;
  };

  int64_t now() const { return now_; }

  // A time in the past counts as now. The handler must live until then.
  void At(int64_t time, Handler* handler, int64_t argument = 0) {
    heap_.push_back({std::max(time, now_), next_number_++, handler, argument});
    std::push_heap(heap_.begin(), heap_.end(), Later);
  }

  // Goes on to the next event. False if there is none.
  bool RunNext() {
    if (heap_.empty()) return false;
    std::pop_heap(heap_.begin(), heap_.end(), Later);
    const Event event = heap_.back();
    heap_.pop_back();
    now_ = event.time;
    event.handler->OnEvent(event.argument);
    return true;
  }

 private:
  struct Event {
    int64_t time;
    uint64_t number;
    Handler* handler;
    int64_t argument;
  };
  static bool Later(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }

  std::vector<Event> heap_;
  int64_t now_ = 0;
  uint64_t next_number_ = 0;
};

// The queue's time for the server's code.
class SimulatedClock : public server::Clock {
 public:
  // `events` must outlive the clock.
  explicit SimulatedClock(const EventQueue* events) : events_(events) {}
  absl::Time Now() const override { return absl::UnixEpoch() + absl::Nanoseconds(events_->now()); }

 private:
  const EventQueue* const events_;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_EVENTS_H_
