// FairShare: whose work a worker takes next, where the batches and steps of several models share
// the workers of one device (worker_pool.h).
//
// First goes the work whose caller has had less of the workers, by weight; of one caller's, that of
// the model which has had less for him; of equal ones, what has waited longer. That is start-time
// fair queuing as in fair_order.h, over the time for which each computes: of two callers f and g
// who have work all the time, in whatever models and however many,
//
//   |time(f) / weight(f) - time(g) / weight(g)|
//       <= (most(f) / weight(f) + most(g) / weight(g)) * workers,
//
// where `most` is the longest that is computed at a time: a batch or step, or where it may be
// interrupted a turn (kernels/turn.h) or some milliseconds against who has computed all the time. A
// caller who comes back after a pause begins where those are that wait. A caller all of whose work
// computes has what he can use: what he could have had besides is not saved up, except for a second
// of it. Where nobody else waits, one caller gets everything. A batch of several callers goes by
// the one who has had least. Priority counts within the queue of a model, not here.
//
// Not thread-safe: the pool's mutex guards it. With n runs and waiting sources, each change takes
// O(n) steps.
#ifndef SRU_SERVER_BATCHING_FAIR_SHARE_H_
#define SRU_SERVER_BATCHING_FAIR_SHARE_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/container/node_hash_map.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "server/batching/queue/flow.h"

namespace sru::server::batching {

class FairShare {
  struct Caller;
  struct Share;

 public:
  // What a source would give next.
  struct Waiting {
    const Flow* flow = nullptr;   // whose it is
    const void* model = nullptr;  // tells models apart
    absl::Time since;             // since when the source has had work
  };
  // What a worker computes. It computes, or is interrupted by another one on the same thread.
  class Run {
   public:
    // The one that it interrupts; null: none.
    explicit Run(const Run* outer = nullptr) : outer_(outer) {}
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

    bool has_begun() const { return !parts_.empty(); }

   private:
    friend class FairShare;
    struct Part {
      Caller* caller;
      Share* share;
      double part;  // of the whole
    };

    const Run* const outer_;
    const void* model_ = nullptr;
    absl::InlinedVector<Part, 2> parts_;
    absl::Time since_;    // when it began, or went on after an interruption
    absl::Time charged_;  // until when its time counts
    bool computes_ = false;
  };

  // The index in `waiting` of what goes next; -1 if there is none. With `interrupted` only what
  // that run has to let go first. `goes_on`: the run of the worker that asks, whose work has ended
  // and may be followed by more of the same; may be null.
  int First(absl::Span<const Waiting> waiting, const Run* interrupted, const Run* goes_on,
            absl::Time now);
  // The run whose callers have had most; null if nothing computes.
  const Run* Furthest() const;
  // The run computes these parts, at least one, from now on. What it has done since it began
  // counts for the parts that it had before.
  void Begin(Run* run, absl::Span<const FlowPart> parts, const void* model, absl::Time now);
  void Interrupt(Run* run, absl::Time now);
  void GoOn(Run* run, absl::Time now);
  // Does nothing if it has not begun.
  void End(Run* run, absl::Time now);
  // The model has gone, and none of its work runs: another one may come at its address. Null: drops
  // the shares of every model that nobody uses.
  void Forget(const void* model);

 private:
  static constexpr size_t kManyShares = 4096;
  // The virtual times of a caller and of his share. The lesser goes first.
  using Order = std::pair<double, double>;

  // The work of a caller for one model.
  struct Share {
    double start = 0;         // virtual time within the caller, in seconds
    int users = 0;            // parts of runs
    const Run* in = nullptr;  // the run that it was last made a part of
    size_t part = 0;          // which
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
    absl::node_hash_map<const void*, Share> shares;  // [model]
  };

  // The time until now counts.
  void Charge(Run* run, absl::Time now);
  static Order OrderOf(const Run& run);
  Order OrderOf(const Waiting& waiting);
  Caller* Find(const Flow* flow);
  // Whether the caller has had less than those who wait, of the cores or, beside other work of his
  // own, for this model.
  bool HadLittle(const Waiting& waiting);
  static bool Has(const Run& run, const Waiting& waiting);
  // Moves the virtual times on: to the least that waits, or to a slice behind the largest if none
  // does.
  void MoveTimes(absl::Span<const Waiting> waiting, const Run* goes_on, absl::Time now);
  // Nothing has waited until now: to a slice behind the largest.
  void MoveTimeOfNewcomers(absl::Time now);
  static void Drop(absl::Span<const Run::Part> parts);

  absl::node_hash_map<const Flow*, Caller> callers_;
  size_t num_shares_ = 0;  // of all callers
  // With more, those that nobody uses are dropped.
  size_t most_shares_ = kManyShares;
  std::vector<Run*> runs_;  // that have begun
  double time_ = 0;         // virtual: where a caller begins who has paused
  bool waits_ = false;      // the last choice has left something waiting
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_FAIR_SHARE_H_
