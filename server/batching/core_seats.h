// CoreSeats: who computes, where the batches and steps of several models share the cores of a
// machine.
//
// There are as many seats as cores. A thread takes one before it computes a batch or step; when
// none is free it waits. At the end of a turn (kernels/turn.h), and between two batches, it gives
// its seat to a thread that waits and should go first, computes one turn more while that thread
// wakes up, so that no core is idle meanwhile, and waits itself. So the workers that the operating
// system has to choose among are hardly more than the cores.
//
// First goes the thread whose caller has had less of the cores, by weight; of one caller's, the one
// whose model has had less; of one model's, the one that has waited longer. That is start-time fair
// queuing as in fair_order.h, over the time for which each computes: of two callers f and g who
// have work all the time, in whatever models and however many,
//
//   |time(f) / weight(f) - time(g) / weight(g)|
//       <= (most(f) / weight(f) + most(g) / weight(g)) * cores,
//
// where `most` is a turn, or some milliseconds for which a thread keeps its seat against those that
// have computed before. A caller who comes back after a pause begins where those are that wait. A
// caller whose threads all compute has what he can use: what he could have had besides is not saved
// up, except for a second of it. Where nobody else waits, one caller gets everything. A batch of
// several callers goes by the one who has had least. Priority counts within the queue of a model,
// not here.
//
// Thread-safe. With n threads that compute or wait, each change takes O(n) steps under a mutex; the
// end of a turn takes none if nobody waits.
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
#include "server/batching/queue/flow.h"

namespace sru::server::batching {

class CoreSeats {
 public:
  // `clock` must outlive it.
  CoreSeats(int seats, const Clock* clock) : seats_(seats), clock_(*clock) {}
  CoreSeats(const CoreSeats&) = delete;
  CoreSeats& operator=(const CoreSeats&) = delete;

  // Whether a thread that must not wait may compute a short batch of the model: a seat is free, or
  // no thread of the model computes or waits and its callers have had no more than others.
  bool MayGo(const void* model);
  // Whether such a thread may compute a little of the caller's work though no seat is free: he has
  // had no more than others.
  bool MayGoBeyond(const Flow* flow);
  int waiting() const { return waits_.load(std::memory_order_relaxed); }
  // The model has gone, with its seats: another one may come at its address.
  void Forget(const void* model);

 private:
  static constexpr size_t kManyShares = 4096;

  struct Model {
    int users = 0;     // seats, had or waited for
    double ahead = 0;  // the largest virtual time of its callers, when they had it last
  };
  // The work of a caller for one model.
  struct Share {
    double start = 0;          // virtual time within the caller, in seconds
    int users = 0;             // parts of seats
    const void* in = nullptr;  // the seat that it was last made a part of
    size_t part = 0;           // which
  };
  struct Caller {
    FlowHandle flow;   // keeps the key alive
    double start = 0;  // virtual time, in seconds
    double time = 0;   // where a share begins that has paused
    int users = 0;     // shares that have users
    // As they were when the times were moved on last: the least of a share that waits (infinity if
    // none does), and the largest of all.
    double least = 0;
    double most = 0;
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

    // Waits until the thread may compute a batch or step of these parts, of which there is at least
    // one. If it has a seat, what it has done since it took it counts for the parts before. Without
    // `waits` it may compute at once, whoever waits. Returns whether it has waited.
    bool Take(absl::Span<const FlowPart> parts, bool waits = true);
    // Gives the seat away, if it has one: to be called before the thread waits for anything else.
    void Release();
    bool is_taken() const { return is_taken_; }
    // Whether it was not given to another thread at the end of a turn. It must be taken, and
    // `seats` not null.
    bool is_seated() const {
      const MutexLock lock(&seats_->mutex_);
      return seated_;
    }
    // How long it has waited since this was called last.
    absl::Duration TakeWaited() { return std::exchange(waited_, absl::ZeroDuration()); }

    void OnTurnEnd() override;
    // Seats are free.
    bool HasIdleCore() const override { return seats_ == nullptr || seats_->has_free(); }

   private:
    friend class CoreSeats;
    struct Part {
      Caller* caller;
      Share* share;
      double part;  // of the whole
    };
    // The virtual times of the caller and of its share. The seat with the lesser order goes first.
    using Order = std::pair<double, double>;

    CoreSeats* const seats_;
    const void* const model_;
    bool is_taken_ = false;
    absl::Duration waited_;
    // The following are guarded by the mutex of seats_.
    absl::InlinedVector<Part, 2> parts_;
    absl::Time since_;    // when it was seated, or began to wait
    absl::Time charged_;  // until when its time counts
    bool seated_ = false;
    bool was_displaced_ = false;  // the last time that it was seated
    CondVar given_;
  };

 private:
  // The time until now counts.
  void Charge(Seat* seat, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Seat::Order OrderOf(const Seat& seat) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Seats the thread that waits and goes first; with `before`, which then gives its seat, only one
  // that goes before that. `within_batch`: `before` has begun with its parts.
  bool SeatFirst(const Seat* before, bool within_batch, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is among those that wait until it is seated.
  void BeginWait(Seat* seat, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wait(Seat* seat) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves the virtual times on: to the least that waits, or to a slice behind the largest if none
  // does.
  void MoveTimes(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Gives the seat other parts; `goes_on`: those whose parts it had have not paused.
  void Join(Seat* seat, absl::Span<const FlowPart> parts, bool goes_on, absl::Time now)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(Seat* seat, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Drop(absl::Span<const Seat::Part> parts);
  Share* ShareOf(Caller* caller, const void* model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool has_free() const { return used_.load(std::memory_order_relaxed) < seats_; }
  // Drops the shares of a model that nobody uses; null: of every model.
  void ForgetShares(const void* model) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int seats_;
  const Clock& clock_;
  // Written under mutex_.
  std::atomic<int> waits_{0};
  std::atomic<int> used_{0};

  Mutex mutex_;
  absl::flat_hash_map<const void*, Model> models_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<const Flow*, std::unique_ptr<Caller>> callers_ ABSL_GUARDED_BY(mutex_);
  size_t num_shares_ ABSL_GUARDED_BY(mutex_) = 0;  // of all callers
  // With more, those that nobody uses are dropped.
  size_t most_shares_ ABSL_GUARDED_BY(mutex_) = kManyShares;
  std::vector<Seat*> all_ ABSL_GUARDED_BY(mutex_);  // had or waited for
  double time_ ABSL_GUARDED_BY(mutex_) = 0;         // virtual: where a caller begins who has paused
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_CORE_SEATS_H_
