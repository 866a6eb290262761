// Cores: the processor of a simulated machine, and the threads that want it.
//
// A thread that is woken while a core is idle runs there after `wake_ns`, in which the core is taken, but does no
// work; preferably on the core where it ran last. Otherwise it waits for that core, first come, first served. A thread
// keeps its core until it has nothing to do, or until it has run for `quantum_ns` and another waits for the core;
// then it goes to the end of the core's queue. That is what SCHED_BATCH comes to, with the turns of the server's
// workers (--compute_turn_us) as their quantum: who wakes does not interrupt who runs. A core that becomes idle
// takes nothing from the queues of others before their next tick: as Linux does where cores are never idle for long.
// From time to time a core pauses, whatever runs on it.
#ifndef SRU_BENCH_CAPACITY_CORES_H_
#define SRU_BENCH_CAPACITY_CORES_H_

#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "bench/capacity_events.h"
#include "bench/capacity_speed.h"

namespace sru::bench {

class Cores : private EventQueue::Handler {
 public:
  class Thread {
   public:
    explicit Thread(int64_t quantum_ns) : quantum_ns_(quantum_ns) {}
    virtual ~Thread() = default;

    // Called whenever the thread has a core and its last piece of work is over: finishes that piece,
    // begins the next and returns how long it takes, or 0 to sleep until it is woken.
    virtual int64_t Next() = 0;

   private:
    friend class Cores;
    const int64_t quantum_ns_;
    int64_t left_ns_ = 0;  // of its present piece of work
    bool awake_ = false;
    size_t core_ = 0;  // where it ran last, or waits
  };

  // `pauses` and `events` must outlive this.
  Cores(int count, double wake_us, const Pauses* pauses, uint64_t seed, EventQueue* events);

  // Does nothing for a thread that is awake: it finds what there is before it sleeps.
  void Wake(Thread* thread);

  // From now on no thread runs. The machine is off.
  void Stop() { stopped_ = true; }

  // The work that all cores have done.
  int64_t busy_ns() const { return busy_ns_; }
  int count() const { return static_cast<int>(cores_.size()); }

 private:
  struct Core {
    Thread* thread = nullptr;
    int64_t used_ns = 0;  // of the thread's quantum
    int64_t part_ns = 0;  // until the event
    int64_t pause_begin = 0;
    int64_t pause_end = 0;
    std::deque<Thread*> waiting;
    bool ticks = false;  // whether the event of its next tick is set
  };

  // `argument` is a core whose thread has done its part of work, or a core's tick.
  void OnEvent(int64_t argument) override;
  // Lets the thread run on an idle core.
  void Run(Core& core, Thread* thread);
  void Wait(Core& core, Thread* thread);
  void SetTick(Core& core);
  // Gives idle cores what waits for this one.
  void Tick(Core& core);
  // The core's next event, once it has done so much work from `from` on.
  void Schedule(Core& core, int64_t from, int64_t work_ns);
  void DrawPause(Core& core);

  const int64_t wake_ns_;
  const Pauses* const pauses_;
  EventQueue* const events_;
  std::mt19937_64 random_;
  std::vector<Core> cores_;
  int64_t busy_ns_ = 0;
  bool stopped_ = false;
};

}  // namespace sru::bench

#endif  // SRU_BENCH_CAPACITY_CORES_H_
