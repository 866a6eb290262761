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
// Whoever shares cores by a rule of its own has a TurnEnd::Scope while the thread computes.
#ifndef SRU_KERNELS_TURN_H_
#define SRU_KERNELS_TURN_H_

#include <chrono>
#include <thread>
#include <utility>

namespace sru::kernels {

// Replaces the yield at the end of a turn. OnTurnEnd() may wait or compute something else, since
// the thread holds no lock there.
class TurnEnd {
 public:
  virtual ~TurnEnd() = default;
  virtual void OnTurnEnd() = 0;
  // Whether fewer threads compute than there are cores, so that another may help this one.
  virtual bool HasIdleCore() const = 0;

  // Null: it yields, and knows of no other thread that computes.
  static TurnEnd*& OfThisThread() {
    thread_local TurnEnd* end = nullptr;
    return end;
  }
  // Until it ends, `end` is that of this thread.
  class Scope {
   public:
    explicit Scope(TurnEnd* end) : outer_(std::exchange(OfThisThread(), end)) {}
    ~Scope() { OfThisThread() = outer_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TurnEnd* const outer_;
  };
};

class Turn {
 public:
  using Clock = std::chrono::steady_clock;

  // 0 = a turn never ends.
  explicit Turn(std::chrono::microseconds length) : length_(length) {}

  void Start(Clock::time_point now = Clock::now()) { start_ = now; }

  // Returns whether this turn ended here and the next one began.
  bool MayEnd(Clock::time_point now = Clock::now()) {
    if (length_.count() == 0 || now - start_ < length_) return false;
    if (TurnEnd* const end = TurnEnd::OfThisThread(); end != nullptr) {
      end->OnTurnEnd();
    } else {
      std::this_thread::yield();
    }
    Start();
    return true;
  }

 private:
  const std::chrono::microseconds length_;
  Clock::time_point start_ = Clock::now();
};

}  // namespace sru::kernels

#endif  // SRU_KERNELS_TURN_H_
