// FairOrder: whose work a queue takes next. Each caller's work is a flow (flow.h); flows share what
// the queue gives by weight.
//
// Start-time fair queuing: each flow has a virtual time, which moves on by rows / weight when
// `rows` of it (tokens, or rows of a step) are taken. Of the flows that have work, the one with the
// least virtual time goes next. One that comes back after a pause begins at the virtual time of the
// queue, so that nobody saves up for later, and whoever has had more than others waits until they
// have caught up. So of two flows f and g that have work all the time, whatever they send,
//
//   |rows(f) / weight(f) - rows(g) / weight(g)| <= most(f) / weight(f) + most(g) / weight(g),
//
// where `most` is the largest piece that is taken at a time, and up to a batch of each worker,
// which was taken before one of them came. One flow alone gets everything.
//
// The priority of the work comes before the share: a higher class goes first, and each class has
// virtual times of its own. A flow competes in the highest class of which a piece of it waits,
// whichever piece is its next one: otherwise low ones that have become old, which go first within a
// flow, would keep its others from their share. Within a flow, its owner chooses the order. A flow
// that has waited for kOverdueIntervals ageing intervals without being given anything goes next
// once, whatever its class, so that it moves even under a flood of the highest.
//
// Not thread-safe: its owner's mutex guards it. Taking a piece is O(log n) with n flows that have
// work, a batch O(n) besides.
#ifndef SRU_SERVER_BATCHING_QUEUE_FAIR_ORDER_H_
#define SRU_SERVER_BATCHING_QUEUE_FAIR_ORDER_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/time/time.h"
#include "server/batching/queue/flow.h"
#include "server/batching/queue/order_tree.h"

namespace sru::server::batching {

inline constexpr int kClasses = 3;  // of Priority
inline constexpr int kOverdueIntervals = 3;
// For so long after two flows have met, work is taken in small pieces, since the next call of a
// flow may come at any time.
inline constexpr absl::Duration kContest = absl::Seconds(1);

// The waiting work, by priority.
struct WaitingWork {
  std::array<OrderWeight, kClasses> of;

  OrderWeight total() const {
    OrderWeight sum;
    for (const OrderWeight& weight : of) sum += weight;
    return sum;
  }
  OrderWeight& at(Priority priority) { return of[static_cast<size_t>(priority)]; }
};

// A flow in one queue; the queue derives from it what it knows besides.
struct FlowShare {
  FlowHandle flow;
  double weight = 1;  // as it counts while the flow is active
  std::array<double, kClasses>
      starts{};  // virtual time of the next piece, or less: then that of the queue
  std::array<int64_t, kClasses> pieces{};  // that wait
  int64_t users = 0;                       // its owner's count of what refers to it
  absl::Time waits_since;                  // for anything to be taken
  static constexpr size_t kIdle = ~size_t{0};
  size_t position = kIdle;  // among the active ones
};

template <typename Share>
class FairOrder {
 public:
  explicit FairOrder(absl::Duration ageing_interval)
      : patience_(kOverdueIntervals * ageing_interval) {}

  // The share of a flow, for as long as it has pieces or users. May throw std::bad_alloc; Insert()
  // and Erase() do not.
  Share* Join(const FlowHandle& flow) {
    if (shares_.size() > 2 * active_.size() + kManyIdle) Forget();
    const auto found = shares_.find(flow.get());
    if (found != shares_.end()) return found->second.get();
    auto made = std::make_unique<Share>();
    made->flow = flow;
    if (active_.capacity() <= shares_.size()) active_.reserve(2 * shares_.size() + 1);
    return shares_.emplace(flow.get(), std::move(made)).first->second.get();
  }
  // Null if the queue knows nothing of it.
  const Share* Find(const Flow* flow) const {
    const auto found = shares_.find(flow);
    return found == shares_.end() ? nullptr : found->second.get();
  }

  // A piece of that priority waits, or does so no longer.
  void Insert(Share* share, Priority priority, absl::Time now) {
    ++share->pieces[static_cast<size_t>(priority)];
    if (share->position != FlowShare::kIdle) return;
    if (joined_ && (!active_.empty() || last_ != share->flow.get())) met_ = now;
    last_ = share->flow.get();
    joined_ = true;
    share->weight = WeightOf(share->flow.get());
    share->waits_since = now;
    share->position = active_.size();
    active_.push_back(share);
    active_weight_ += share->weight;
  }
  void Erase(Share* share, Priority priority) {
    --share->pieces[static_cast<size_t>(priority)];
    for (const int64_t pieces : share->pieces) {
      if (pieces > 0) return;
    }
    active_[share->position] = active_.back();
    active_[share->position]->position = share->position;
    active_.pop_back();
    active_weight_ = active_.empty() ? 0 : active_weight_ - share->weight;
    share->position = FlowShare::kIdle;
  }

  // Flows of which a piece waits.
  const std::vector<Share*>& active() const { return active_; }
  // Two flows compete, or did a short time ago.
  bool contested(absl::Time now) const { return active_.size() > 1 || now - met_ < kContest; }
  // The part of the whole that the flow gets while all that are active stay so; 1 for one alone.
  double ShareOf(const Flow* flow) const {
    const double own = WeightOf(flow);
    return own / (own + OthersWeight(flow));
  }
  // How much of `others`, which waits, goes before the last of `own` work of a flow, at most.
  OrderWeight Before(const Flow* flow, Priority priority, int64_t own_rows,
                     const OrderWeight& others) const {
    if (others.tokens <= 0) return OrderWeight();
    const auto c = static_cast<size_t>(priority);
    const Share* const share = Find(flow);
    const double ahead = share == nullptr ? 0 : std::max(0.0, share->starts[c] - times_[c]);
    const double rows =
        OthersWeight(flow) * (ahead + static_cast<double>(own_rows) / WeightOf(flow));
    const double part = std::min(1.0, rows / static_cast<double>(others.tokens));
    return {static_cast<int64_t>(part * static_cast<double>(others.tokens)),
            static_cast<int64_t>(part * static_cast<double>(others.sequences))};
  }

  // A batch is about to be chosen.
  void Begin(absl::Time now) {
    now_ = now;
    for (Share* share : active_) {  // weights may have changed
      const double before = std::exchange(share->weight, WeightOf(share->flow.get()));
      active_weight_ += share->weight - before;
    }
    for (size_t c = 0; c < kClasses; ++c) {
      double least = kNever;
      for (const Share* share : active_) {
        if (share->pieces[c] > 0) least = std::min(least, share->starts[c]);
      }
      if (least < kNever) times_[c] = std::max(times_[c], least);
    }
  }
  // The following choose its pieces: Clear(), Add() for each flow that has one, Start(), and then
  // for as long as there is a Next() Took() and Replace(), or Pop().
  void Clear() { turns_.clear(); }
  // `piece`: what it would give next, of that priority and that number among all arrivals.
  void Add(Share* share, Priority priority, uint64_t number) {
    turns_.push_back(TurnOf(share, priority, number));
  }
  void Start() { std::make_heap(turns_.begin(), turns_.end(), GoesLater); }
  // Null if nobody has anything more.
  Share* Next() const { return turns_.empty() ? nullptr : turns_.front().share; }
  // `rows` of the next flow are taken.
  void Took(int64_t rows) {
    const Turn& turn = turns_.front();
    turn.share->starts[turn.level] = turn.start + static_cast<double>(rows) / turn.share->weight;
    turn.share->waits_since = now_;
  }
  // Its next piece is another one.
  void Replace(Priority priority, uint64_t number) {
    Share* const share = turns_.front().share;
    if (turns_.size() == 1) {
      turns_.front() = TurnOf(share, priority, number);
      return;
    }
    std::pop_heap(turns_.begin(), turns_.end(), GoesLater);
    turns_.back() = TurnOf(share, priority, number);
    std::push_heap(turns_.begin(), turns_.end(), GoesLater);
  }
  // It has no other piece for this batch.
  void Pop() {
    std::pop_heap(turns_.begin(), turns_.end(), GoesLater);
    turns_.pop_back();
  }

 private:
  struct Turn {
    absl::Time overdue_since;  // InfiniteFuture(): not overdue
    size_t level = 0;          // the priority
    double start = 0;
    uint64_t number = 0;
    Share* share = nullptr;
  };
  static constexpr size_t kManyIdle = 64;
  static constexpr size_t kMostIdle = 4096;
  static constexpr double kNever = 1e300;

  static bool GoesLater(const Turn& a, const Turn& b) {
    return std::make_tuple(b.overdue_since, a.level, b.start, b.number) <
           std::make_tuple(a.overdue_since, b.level, a.start, a.number);
  }
  static double WeightOf(const Flow* flow) { return flow == nullptr ? 1 : flow->weight(); }
  double OthersWeight(const Flow* flow) const {
    const Share* const share = Find(flow);
    const bool counts = share != nullptr && share->position != FlowShare::kIdle;
    return std::max(0.0, active_weight_ - (counts ? share->weight : 0));
  }
  Turn TurnOf(Share* share, Priority priority, uint64_t number) const {
    auto level = static_cast<size_t>(priority);
    for (size_t c = level + 1; c < kClasses; ++c) {
      if (share->pieces[c] > 0) level = c;
    }
    const bool overdue = now_ - share->waits_since >= patience_;
    return {overdue ? share->waits_since : absl::InfiniteFuture(), level,
            std::max(share->starts[level], times_[level]), number, share};
  }
  // Drops the shares of idle flows that no longer matter, or of all idle flows if there are too
  // many.
  void Forget() {
    const bool all = shares_.size() > active_.size() + kMostIdle;
    absl::erase_if(shares_, [&](const auto& entry) {
      const Share& share = *entry.second;
      if (share.position != FlowShare::kIdle || share.users > 0) return false;
      bool ahead = false;
      for (size_t c = 0; c < kClasses; ++c) ahead |= share.starts[c] > times_[c];
      return all || !ahead;
    });
  }

  const absl::Duration patience_;
  absl::flat_hash_map<const Flow*, std::unique_ptr<Share>> shares_;
  std::vector<Share*> active_;
  double active_weight_ = 0;
  std::array<double, kClasses> times_{};  // virtual times of the queue

  const Flow* last_ = nullptr;  // that became active
  bool joined_ = false;
  absl::Time met_ = absl::InfinitePast();

  absl::Time now_;
  std::vector<Turn> turns_;  // a heap
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_FAIR_ORDER_H_
