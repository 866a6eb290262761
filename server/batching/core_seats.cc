#include "server/batching/core_seats.h"

#include <algorithm>
#include <limits>
#include <thread>
#include <utility>

namespace sru::server::batching {
namespace {

// For so long a thread keeps its seat against those that have computed before: to change hands
// costs some microseconds.
constexpr absl::Duration kSlice = absl::Milliseconds(4);
// So much of what a caller could have had he may have later, in seconds by weight.
constexpr double kMostCredit = 1;
constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

bool CoreSeats::Seat::Take(absl::Span<const FlowPart> parts, bool waits) {
  if (seats_ == nullptr) return false;
  const MutexLock lock(&seats_->mutex_);
  const absl::Time now = seats_->clock_.Now();
  if (seats_->num_shares_ > seats_->most_shares_) {
    seats_->ForgetShares(nullptr);
    seats_->most_shares_ = std::max(kManyShares, 2 * seats_->num_shares_);
  }
  const bool had_one = std::exchange(is_taken_, true);
  if (had_one) {
    seats_->Charge(this, now);
    if (!seated_) --seats_->waits_;
  }
  seats_->MoveTimes(now);
  seats_->Join(this, parts, had_one, now);
  if (seated_) {
    if (seats_->SeatFirst(this, /*within_batch=*/false, now)) seats_->BeginWait(this, now);
    return false;
  }
  if (waits && !seats_->has_free()) {
    seats_->BeginWait(this, now);
    was_displaced_ = had_one;
    seats_->Wait(this);
    return true;
  }
  ++seats_->used_;
  seated_ = true;
  since_ = now;
  return false;
}

void CoreSeats::Seat::Release() {
  if (!std::exchange(is_taken_, false)) return;
  const MutexLock lock(&seats_->mutex_);
  const absl::Time now = seats_->clock_.Now();
  seats_->Leave(this, now);
  if (!std::exchange(seated_, false)) return;
  const bool is_one_too_many = seats_->used_ > seats_->seats_;
  if (is_one_too_many || !seats_->SeatFirst(nullptr, /*within_batch=*/false, now)) --seats_->used_;
}

void CoreSeats::Seat::OnTurnEnd() {
  // Acquires what the thread has done that had the seat, where this one has it again before it has
  // waited.
  if (seats_ != nullptr && seats_->waits_.load(std::memory_order_acquire) > 0) {
    const MutexLock lock(&seats_->mutex_);
    const absl::Time now = seats_->clock_.Now();
    seats_->Charge(this, now);
    if (!seated_) return seats_->Wait(this);
    if (seats_->SeatFirst(this, /*within_batch=*/true, now)) seats_->BeginWait(this, now);
  }
  std::this_thread::yield();  // to a thread that does not compute, or that has the seat now
}

bool CoreSeats::MayGo(const void* model) {
  const MutexLock lock(&mutex_);
  if (has_free()) return true;
  MoveTimes(clock_.Now());
  const auto own = models_.find(model);
  return own == models_.end() || (own->second.users == 0 && own->second.ahead <= time_);
}

bool CoreSeats::MayGoBeyond(const Flow* flow) {
  const MutexLock lock(&mutex_);
  MoveTimes(clock_.Now());
  const auto found = callers_.find(flow);
  return found == callers_.end() || found->second->start <= time_;
}

void CoreSeats::Forget(const void* model) {
  const MutexLock lock(&mutex_);
  ForgetShares(model);
}

void CoreSeats::Charge(Seat* seat, absl::Time now) {
  const double seconds = absl::ToDoubleSeconds(now - std::exchange(seat->charged_, now));
  double& ahead = models_[seat->model_].ahead;
  for (const Seat::Part& part : seat->parts_) {
    const Flow* const flow = part.caller->flow.get();
    const double weight = flow == nullptr ? 1 : flow->weight();
    part.caller->start += seconds * part.part / weight;
    part.share->start += seconds * part.part;
    ahead = std::max(ahead, part.caller->start);
  }
}

CoreSeats::Seat::Order CoreSeats::OrderOf(const Seat& seat) const {
  Seat::Order order = {kNever, kNever};
  for (const Seat::Part& part : seat.parts_) {
    order = std::min(order, Seat::Order(part.caller->start, part.share->start));
  }
  return order;
}

bool CoreSeats::SeatFirst(const Seat* before, bool within_batch, absl::Time now) {
  const Seat::Order last = before == nullptr ? Seat::Order(kNever, kNever) : OrderOf(*before);
  const bool had_its_slice = before == nullptr || now - before->since_ >= kSlice;
  Seat* first = nullptr;
  Seat::Order least;
  for (Seat* seat : all_) {
    if (seat->seated_ || seat == before) continue;
    const Seat::Order order = OrderOf(*seat);
    if (order == last ? within_batch || !had_its_slice
                      : last < order || (seat->was_displaced_ && !had_its_slice)) {
      continue;
    }
    if (first == nullptr || order < least || (order == least && seat->since_ < first->since_)) {
      first = seat;
      least = order;
    }
  }
  if (first == nullptr) return false;
  --waits_;
  first->seated_ = true;
  first->since_ = first->charged_ = now;
  first->given_.Signal();
  return true;
}

void CoreSeats::BeginWait(Seat* seat, absl::Time now) {
  ++waits_;
  seat->seated_ = false;
  seat->was_displaced_ = true;
  seat->since_ = now;
}

void CoreSeats::Wait(Seat* seat) {
  const absl::Time start = clock_.Now();
  while (!seat->seated_) seat->given_.Wait(&mutex_);
  seat->waited_ += clock_.Now() - start;
}

void CoreSeats::MoveTimes(absl::Time now) {
  if (all_.empty()) return;
  for (Seat* seat : all_) {
    if (seat->seated_) Charge(seat, now);
    for (const Seat::Part& part : seat->parts_) {
      part.caller->least = kNever;
      part.caller->most = 0;
    }
  }
  double least = kNever;
  double most = 0;
  for (const Seat* seat : all_) {
    for (const Seat::Part& part : seat->parts_) {
      most = std::max(most, part.caller->start);
      part.caller->most = std::max(part.caller->most, part.share->start);
      if (seat->seated_) continue;
      least = std::min(least, part.caller->start);
      part.caller->least = std::min(part.caller->least, part.share->start);
    }
  }
  // Where nobody waits the time is a slice behind the largest, so that a thread that leaves for a
  // moment loses nothing by it.
  const double slice = absl::ToDoubleSeconds(kSlice);
  time_ = std::max(time_, least < kNever ? least : most - slice);
  for (const Seat* seat : all_) {
    for (const Seat::Part& part : seat->parts_) {
      Caller& caller = *part.caller;
      caller.start = std::max(caller.start, time_ - kMostCredit);
      caller.time =
          std::max(caller.time, caller.least < kNever ? caller.least : caller.most - slice);
      part.share->start = std::max(part.share->start, caller.time - kMostCredit);
    }
  }
}

void CoreSeats::Join(Seat* seat, absl::Span<const FlowPart> parts, bool goes_on, absl::Time now) {
  seat->charged_ = now;
  const auto before = seat->parts_;
  seat->parts_.clear();
  double rows = 0;
  for (const FlowPart& part : parts) rows += static_cast<double>(part.rows);
  rows = std::max(rows, 1.0);
  for (const FlowPart& part : parts) {
    std::unique_ptr<Caller>& caller = callers_[part.flow.get()];
    if (caller == nullptr) {
      caller = std::make_unique<Caller>();
      caller->flow = part.flow;
    }
    Share* const share = ShareOf(caller.get(), seat->model_);
    const double of_whole = static_cast<double>(part.rows) / rows;
    if (share->in == seat && share->part < seat->parts_.size() &&
        seat->parts_[share->part].share == share) {
      seat->parts_[share->part].part += of_whole;
      continue;
    }
    share->in = seat;
    share->part = seat->parts_.size();
    if (caller->users == 0 || (!goes_on && caller->least == kNever)) {
      caller->start = std::max(caller->start, time_);
    }
    if (share->users++ == 0) {
      ++caller->users;
      share->start = std::max(share->start, caller->time);
    }
    seat->parts_.push_back({caller.get(), share, of_whole});
  }
  Drop(before);
  if (goes_on) return;
  ++models_[seat->model_].users;
  all_.push_back(seat);
}

void CoreSeats::Leave(Seat* seat, absl::Time now) {
  Charge(seat, now);
  if (!seat->seated_) --waits_;
  --models_[seat->model_].users;
  *std::find(all_.begin(), all_.end(), seat) = all_.back();
  all_.pop_back();
  // Who comes when nobody computes begins where the last one has ended.
  if (all_.empty()) time_ = std::max(time_, OrderOf(*seat).first);
  Drop(seat->parts_);
  seat->parts_.clear();
}

void CoreSeats::Drop(absl::Span<const Seat::Part> parts) {
  for (const Seat::Part& part : parts) {
    if (--part.share->users > 0 || --part.caller->users > 0) continue;
    part.caller->time = std::max(part.caller->time, part.share->start);
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

void CoreSeats::ForgetShares(const void* model) {
  const auto is_meant = [model](const void* of) { return model == nullptr || of == model; };
  absl::erase_if(callers_, [&](const auto& entry) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto& shares = entry.second->shares;
    num_shares_ -= absl::erase_if(shares, [&](const auto& share) {
      return is_meant(share.first) && share.second->users == 0;
    });
    return shares.empty();
  });
  absl::erase_if(models_,
                 [&](const auto& of) { return is_meant(of.first) && of.second.users == 0; });
}

}  // namespace sru::server::batching
