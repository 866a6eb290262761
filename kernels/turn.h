// Turn: makes a thread that computes for a long time yield its core now and then. Otherwise the
// threads that accept and refuse calls wait for the system's next tick, which may be 4 ms away.
//
//   Turn turn(std::chrono::microseconds(200));
//   turn.Start();
//   while (...) {
//     ... compute a little ...
//     turn.MayEnd();  // if 200 us have passed, yields the core to any waiting thread
//   }
//
// When no thread waits, the end of a turn costs less than a microsecond. Used by one thread.
#ifndef SRU_KERNELS_TURN_H_
#define SRU_KERNELS_TURN_H_

#include <chrono>
#include <thread>

namespace sru::kernels {

class Turn {
 public:
  using Clock = std::chrono::steady_clock;

  // 0 = a turn never ends.
  explicit Turn(std::chrono::microseconds length) : length_(length) {}

  void Start(Clock::time_point now = Clock::now()) { start_ = now; }

  // Returns whether this turn ended here and the next one began.
  bool MayEnd(Clock::time_point now = Clock::now()) {
    if (length_.count() == 0 || now - start_ < length_) return false;
    std::this_thread::yield();
    Start();
    return true;
  }

 private:
  const std::chrono::microseconds length_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_TURN_H_
