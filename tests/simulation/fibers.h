// Fibers: threads of a simulation. One runs at a time; which one is next is drawn from a seed, so
// that a history replays exactly. Time moves on only while all sleep. simulated_mutex.h puts them
// under the code that is simulated. Used from one thread.
#ifndef SRU_TESTS_SIMULATION_FIBERS_H_
#define SRU_TESTS_SIMULATION_FIBERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/time/time.h"

namespace sru::simulation {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t x = (state_ += 0x9e3779b97f4a7c15u);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }
  int64_t From(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(Next() % static_cast<uint64_t>(most - least + 1));
  }
  bool OneIn(int64_t n) { return From(1, n) == 1; }

 private:
  uint64_t state_;
};

class Fibers {
 public:
  explicit Fibers(uint64_t seed);
  ~Fibers();

  // The fibers that run; null outside of Run().
  static Fibers* Current();

  // Runs `body` on a fiber of its own.
  void Spawn(std::function<void()> body);
  // Until every fiber has ended. `quiet` is called whenever all sleep, before time moves on. False
  // if all sleep for ever, or have not ended after an hour.
  bool Run(const std::function<void()>& quiet);

  absl::Time now() const { return now_; }
  Random& random() { return random_; }

  // Of the fiber that runs. Others may run before it returns; if not `always`, sometimes.
  void Yield(bool always = false);
  // Until Signal(on) or that time. Null: nothing signals.
  void Wait(const void* on, absl::Time until);
  void Sleep(absl::Duration duration) { Wait(nullptr, now_ + duration); }
  void Signal(const void* on, bool all);

  // A planted fault: one signal in this many gets lost; 0 = none.
  int lost_signals = 0;

 private:
  struct Fiber;
  static void Enter();
  void Switch(Fiber* to);

  Random random_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::unique_ptr<Fiber> main_;
  Fiber* running_ = nullptr;
};

}  // namespace sru::simulation

#endif  // SRU_TESTS_SIMULATION_FIBERS_H_
