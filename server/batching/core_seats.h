// CoreSeats: who computes, where the batches and steps of several models share the cores of a machine.
//
// There are as many seats as cores. A batch or step takes one while it computes; when none is free it waits. At the end of a turn
// (kernels/turn.h) it gives its seat to the one that waits and should go before it, and waits itself. So the workers that the operating
// system has to choose among are never more than the cores.
//
// Who goes first: a higher priority; then the caller who has had less, by weight; of one caller, the model that has had less. That is
// start-time fair queuing as in fair_order.h, over the time in which each computes: of two callers f and g who have work all the time, in
// whatever models and however many,
//
//   |time(f) / weight(f) - time(g) / weight(g)| <= (most(f) / weight(f) + most(g) / weight(g)) * cores,
//
// where `most` is what one computes at a time: a turn, or some milliseconds for what has computed before. One that comes back after a pause begins
// where the others are. What has waited for kOverdueIntervals ageing intervals goes first, and keeps its seat until it has ended, so that it moves even under a
// flood of a higher priority. Where nobody else waits, one caller gets everything.
//
// Thread-safe. With n batches that compute or wait, each takes O(n) steps, under a mutex that is held for no longer than that; a turn at
// whose end nobody waits takes none.
#ifndef SRU_SERVER_BATCHING_CORE_SEATS_H_
#define SRU_SERVER_BATCHING_CORE_SEATS_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "kernels/turn.h"
#include "server/base/clock.h"
#include "server/batching/queue/fair_order.h"
#include "server/batching/queue/flow.h"

namespace sru::server::batching {

class CoreSeats {
 public:
  // `ageing_interval` is that of the queues (BatcherOptions). `clock` must outlive it.
  CoreSeats(int seats, absl::Duration ageing_interval, const Clock* clock)
      : seats_(seats), patience_(kOverdueIntervals * ageing_interval), clock_(*clock) {}
  CoreSeats(const CoreSeats&) = delete;
  CoreSeats& operator=(const CoreSeats&) = delete;

  // Whether a thread that must not wait may compute a short batch of the model: a seat is free, or nothing of the model computes or waits and it
  // has had no more than others, so that it would be given a seat at the end of the next turn.
  bool MayGo(const void* model);
  int waiting() const { return waits_.load(std::memory_order_relaxed); }

 private:
  struct Model {
    int users = 0;     // seats, had or waited for
    double ahead = 0;  // the largest virtual time of its shares
  };
  // The work of a caller for one model.
  struct Share {
    double start = 0;  // virtual time, in seconds
    int users = 0;     // seats, had or waited for
  };
  struct Caller {
    FlowHandle flow;                                                  // keeps the key alive
    int active = 0;                                                   // shares that have users
    absl::flat_hash_map<const void*, std::unique_ptr<Share>> shares;  // [model]
  };

 public:
  // The seat of a thread: it has none, waits for one, or has one. Used by that thread.
  class Seat final : public kernels::TurnEnd {
   public:
    // With null `seats` it does nothing but yield. `model` tells models apart.
    Seat(CoreSeats* seats, const void* model) : seats_(seats), model_(model) {}
    ~Seat() override { Release(); }
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    // Waits until the thread may compute a batch or step of these parts. What it has done since it took its seat for another one counts
    // for that one. Without `waits` it may compute at once, whoever waits.
    void Take(absl::Span<const FlowPart> parts, bool waits = true);
    // Gives the seat away, if it has one: to be called before the thread waits for work.
    void Release();
    bool is_taken() const { return is_taken_; }

    void OnTurnEnd() override;

   private:
    friend class CoreSeats;
    struct Part {
      Caller* caller;
      Share* share;
      double part;  // of the whole
    };

    CoreSeats* const seats_;
    const void* const model_;
    bool is_taken_ = false;
    // The following are guarded by the mutex of seats_.
    absl::InlinedVector<Part, 2> parts_;
    Priority priority_ = Priority::kLow;  // the highest of its parts
    absl::Time since_;                    // it has had its seat, or has waited for one
    bool seated_ = false;
    bool has_computed_ = false;  // some of the parts
    bool stays_ = false;         // until it takes its seat for others
    CondVar given_;
  };

 private:
  // The time until now counts.
  void Charge(Seat* seat, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double StartOf(const Seat& seat) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool GoesBefore(const Seat& a, const Seat& b, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsOverdue(const Seat& seat, absl::Time now) const { return now - seat.since_ >= patience_; }
  // Gives the seat of `from` to the one that waits and goes first. With `only_before`, only to one that goes before `from`.
  bool GiveFrom(const Seat& from, bool only_before, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits among the others until a seat is given.
  void Wait(Seat* seat, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves time_ on to where the least of them all is.
  void MoveTime(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Join(Seat* seat, absl::Span<const FlowPart> parts, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(Seat* seat, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Share* ShareOf(Caller* caller, const void* model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool has_free() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return used_ < seats_; }
  // Drops the shares that nobody uses.
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int seats_;
  const absl::Duration patience_;
  const Clock& clock_;
  std::atomic<int> waits_{0};  // written under mutex_

  Mutex mutex_;
  int used_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<const void*, Model> models_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Flow*, std::unique_ptr<Caller>> callers_ ABSL_GUARDED_BY(mutex_);
  size_t num_shares_ ABSL_GUARDED_BY(mutex_) = 0;   // of all callers
  std::vector<Seat*> all_ ABSL_GUARDED_BY(mutex_);  // had or waited for
  double time_ ABSL_GUARDED_BY(mutex_) = 0;         // virtual: where one begins that has paused
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_CORE_SEATS_H_
