#include "server/batching/core_seats.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

namespace sru::server::batching {
namespace {

// With more shares than this, those that nobody uses are dropped.
constexpr size_t kManyShares = 4096;
// What has given its seat away has it back no sooner than others have had so many seconds more: with each change of seats a core does
// nothing for some 50 us.
constexpr double kSlice = 4e-3;

}  // namespace

void CoreSeats::Seat::Take(absl::Span<const FlowPart> parts, bool waits) {
  if (seats_ == nullptr) return;
  const MutexLock lock(&seats_->mutex_);
  const absl::Time now = seats_->clock_.Now();
  seats_->MoveTime(now);  // before it leaves: it does not pause
  if (is_taken_) seats_->Leave(this, now);
  seats_->Join(this, parts, now);
  const bool had_one = std::exchange(is_taken_, true);
  if (had_one ? seats_->GiveFrom(*this, /*only_before=*/true, now) : waits && !seats_->has_free()) {
    return seats_->Wait(this, now);
  }
  if (!had_one) ++seats_->used_;
  seated_ = true;
}

void CoreSeats::Seat::Release() {
  if (!std::exchange(is_taken_, false)) return;
  const MutexLock lock(&seats_->mutex_);
  const absl::Time now = seats_->clock_.Now();
  seats_->Leave(this, now);
  const bool is_one_too_many = seats_->used_ > seats_->seats_;
  if (is_one_too_many || !seats_->GiveFrom(*this, /*only_before=*/false, now)) --seats_->used_;
}

void CoreSeats::Seat::OnTurnEnd() {
  if (seats_ != nullptr && seats_->waits_.load(std::memory_order_relaxed) > 0) {
    const MutexLock lock(&seats_->mutex_);
    const absl::Time now = seats_->clock_.Now();
    seats_->Charge(this, now);
    if (!stays_ && seats_->GiveFrom(*this, /*only_before=*/true, now)) {
      has_computed_ = true;
      return seats_->Wait(this, now);
    }
  }
  std::this_thread::yield();  // to a thread that does not compute
}

bool CoreSeats::MayGo(const void* model) {
  const MutexLock lock(&mutex_);
  if (has_free()) return true;
  MoveTime(clock_.Now());
  const Model& own = models_[model];
  return own.users == 0 && own.ahead <= time_;
}

void CoreSeats::Charge(Seat* seat, absl::Time now) {
  const double seconds = absl::ToDoubleSeconds(now - seat->since_);
  seat->since_ = now;
  double& ahead = models_[seat->model_].ahead;
  for (const Seat::Part& part : seat->parts_) {
    const Flow* const flow = part.caller->flow.get();
    const double weight = flow == nullptr ? 1 : flow->weight();
    part.share->start += seconds * part.part * part.caller->active / weight;
    ahead = std::max(ahead, part.share->start);
  }
}

double CoreSeats::StartOf(const Seat& seat) const {
  double start = std::numeric_limits<double>::infinity();
  for (const Seat::Part& part : seat.parts_) start = std::min(start, part.share->start);
  return start;
}

bool CoreSeats::GoesBefore(const Seat& a, const Seat& b, absl::Time now) const {
  const bool a_overdue = !a.seated_ && IsOverdue(a, now);
  const bool b_overdue = !b.seated_ && IsOverdue(b, now);
  if (a_overdue != b_overdue) return a_overdue;
  if (a_overdue) return a.since_ < b.since_;
  if (a.priority_ != b.priority_) return a.priority_ > b.priority_;
  const bool was_displaced = b.seated_ && a.has_computed_;
  return StartOf(a) + (was_displaced ? kSlice : 0) < StartOf(b);
}

bool CoreSeats::GiveFrom(const Seat& from, bool only_before, absl::Time now) {
  Seat* first = nullptr;
  for (Seat* seat : all_) {
    if (seat->seated_ || (only_before && !GoesBefore(*seat, from, now))) continue;
    if (first == nullptr || GoesBefore(*seat, *first, now)) first = seat;
  }
  if (first == nullptr) return false;
  --waits_;
  first->stays_ = IsOverdue(*first, now);
  first->seated_ = true;
  first->since_ = now;
  first->given_.Signal();
  return true;
}

void CoreSeats::Wait(Seat* seat, absl::Time now) {
  ++waits_;
  seat->seated_ = false;
  seat->since_ = now;
  while (!seat->seated_) seat->given_.Wait(&mutex_);
}

void CoreSeats::MoveTime(absl::Time now) {
  if (all_.empty()) return;
  double least = std::numeric_limits<double>::infinity();
  for (Seat* seat : all_) {
    if (seat->seated_) Charge(seat, now);
    least = std::min(least, StartOf(*seat));
  }
  time_ = std::max(time_, least);
}

void CoreSeats::Join(Seat* seat, absl::Span<const FlowPart> parts, absl::Time now) {
  seat->since_ = now;
  seat->has_computed_ = seat->stays_ = false;
  seat->priority_ = Priority::kLow;
  seat->parts_.clear();
  if (num_shares_ > kManyShares) Forget();
  double rows = 0;
  for (const FlowPart& part : parts) rows += static_cast<double>(part.rows);
  rows = std::max(rows, 1.0);
  seat->parts_.reserve(parts.size());
  for (const FlowPart& part : parts) {
    std::unique_ptr<Caller>& caller = callers_[part.flow.get()];
    if (caller == nullptr) {
      caller = std::make_unique<Caller>();
      caller->flow = part.flow;
    }
    Share* const share = ShareOf(caller.get(), seat->model_);
    if (share->users++ == 0) {
      ++caller->active;
      share->start = std::max(share->start, time_);
    }
    seat->parts_.push_back({caller.get(), share, static_cast<double>(part.rows) / rows});
    seat->priority_ = std::max(seat->priority_, part.priority);
  }
  ++models_[seat->model_].users;
  all_.push_back(seat);
}

void CoreSeats::Leave(Seat* seat, absl::Time now) {
  Charge(seat, now);
  --models_[seat->model_].users;
  *std::find(all_.begin(), all_.end(), seat) = all_.back();
  all_.pop_back();
  // Who comes when nobody computes begins where the last one has ended.
  if (all_.empty()) time_ = std::max(time_, StartOf(*seat));
  for (const Seat::Part& part : seat->parts_) {
    if (--part.share->users == 0) --part.caller->active;
  }
}

CoreSeats::Share* CoreSeats::ShareOf(Caller* caller, const void* model) {
  std::unique_ptr<Share>& share = caller->shares[model];
  if (share == nullptr) {
    share = std::make_unique<Share>();
    ++num_shares_;
  }
  return share.get();
}

void CoreSeats::Forget() {
  absl::erase_if(callers_, [this](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto& shares = entry.second->shares;
    num_shares_ -=
        absl::erase_if(shares, [](const auto& share) { return share.second->users == 0; });
    return shares.empty();
  });
  absl::erase_if(models_, [](const auto& model) { return model.second.users == 0; });
}

}  // namespace sru::server::batching
