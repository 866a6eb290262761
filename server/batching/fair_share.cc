#include "server/batching/fair_share.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace sru::server::batching {
namespace {

// For so long work is not interrupted by that of a caller who has computed all the time, too: to
// change costs some microseconds, and what is interrupted ends later.
constexpr absl::Duration kSlice = absl::Milliseconds(4);
// So much of what a caller could have had he may have later, in seconds by weight.
constexpr double kMostCredit = 1;
constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

int FairShare::First(absl::Span<const Waiting> waiting, const Run* interrupted, const Run* goes_on,
                     absl::Time now) {
  if (waiting.empty()) return -1;
  if (!waits_) MoveTimeOfNewcomers(now);
  MoveTimes(waiting, goes_on, now);
  const Order last = interrupted == nullptr ? Order(kNever, kNever) : OrderOf(*interrupted);
  const bool had_its_slice = interrupted == nullptr || now - interrupted->since_ >= kSlice;
  int first = -1;
  Order least;
  for (size_t i = 0; i < waiting.size(); ++i) {
    const Order order = OrderOf(waiting[i]);
    if (order >= last && interrupted != nullptr) continue;
    if (!had_its_slice && !HadLittle(waiting[i])) continue;
    bool is_interrupted_here = false;
    for (const Run* run = interrupted; run != nullptr; run = run->outer_) {
      is_interrupted_here |= Has(*run, waiting[i]);
    }
    if (is_interrupted_here) continue;  // that has to end first
    if (first < 0 || order < least || (order == least && waiting[i].since < waiting[first].since)) {
      first = static_cast<int>(i);
      least = order;
    }
  }
  waits_ = first < 0 || waiting.size() > 1;
  return first;
}

const FairShare::Run* FairShare::Furthest() const {
  const Run* furthest = nullptr;
  for (const Run* run : runs_) {
    if (!run->computes_) continue;
    if (furthest == nullptr || OrderOf(*furthest) < OrderOf(*run)) furthest = run;
  }
  return furthest;
}

void FairShare::Begin(Run* run, absl::Span<const FlowPart> parts, const void* model,
                      absl::Time now) {
  if (num_shares_ > most_shares_) {
    Forget(nullptr);
    most_shares_ = std::max(kManyShares, 2 * num_shares_);
  }
  const bool goes_on = run->has_begun();
  Charge(run, now);
  const absl::InlinedVector<Run::Part, 2> before = std::move(run->parts_);
  run->parts_.clear();
  run->model_ = model;
  double rows = 0;
  for (const FlowPart& part : parts) rows += static_cast<double>(part.rows);
  rows = std::max(rows, 1.0);
  for (const FlowPart& part : parts) {
    Caller& caller = callers_[part.flow.get()];
    if (caller.flow == nullptr) caller.flow = part.flow;
    const auto [entry, is_new] = caller.shares.try_emplace(model);
    if (is_new) ++num_shares_;
    Share* const share = &entry->second;
    const double of_whole = static_cast<double>(part.rows) / rows;
    if (share->in == run && share->part < run->parts_.size() &&
        run->parts_[share->part].share == share) {
      run->parts_[share->part].part += of_whole;
      continue;
    }
    share->in = run;
    share->part = run->parts_.size();
    if (caller.users == 0) caller.start = std::max(caller.start, time_);
    if (share->users++ == 0) {
      ++caller.users;
      share->start = std::max(share->start, caller.time);
    }
    run->parts_.push_back({&caller, share, of_whole});
  }
  Drop(before);
  run->computes_ = true;
  run->since_ = run->charged_ = now;
  if (!goes_on) runs_.push_back(run);
}

void FairShare::Interrupt(Run* run, absl::Time now) {
  Charge(run, now);
  run->computes_ = false;
}

void FairShare::GoOn(Run* run, absl::Time now) {
  run->computes_ = true;
  run->since_ = run->charged_ = now;
}

void FairShare::End(Run* run, absl::Time now) {
  if (!run->has_begun()) return;
  Charge(run, now);
  *std::find(runs_.begin(), runs_.end(), run) = runs_.back();
  runs_.pop_back();
  // Who comes when nobody computes begins where the last one has ended.
  if (runs_.empty()) time_ = std::max(time_, OrderOf(*run).first);
  Drop(run->parts_);
  run->parts_.clear();
  run->computes_ = false;
}

void FairShare::Charge(Run* run, absl::Time now) {
  if (!run->computes_) return;
  const double seconds = absl::ToDoubleSeconds(now - std::exchange(run->charged_, now));
  for (const Run::Part& part : run->parts_) {
    const Flow* const flow = part.caller->flow.get();
    const double weight = flow == nullptr ? 1 : flow->weight();
    part.caller->start += seconds * part.part / weight;
    part.share->start += seconds * part.part;
  }
}

FairShare::Order FairShare::OrderOf(const Run& run) {
  Order order = {kNever, kNever};
  for (const Run::Part& part : run.parts_) {
    order = std::min(order, Order(part.caller->start, part.share->start));
  }
  return order;
}

FairShare::Order FairShare::OrderOf(const Waiting& waiting) {
  const Caller* const caller = Find(waiting.flow);
  if (caller == nullptr) return {time_, 0};
  const double start = caller->users == 0 ? std::max(caller->start, time_) : caller->start;
  const auto share = caller->shares.find(waiting.model);
  if (share == caller->shares.end()) return {start, caller->time};
  const double own = share->second.start;
  return {start, share->second.users == 0 ? std::max(own, caller->time) : own};
}

FairShare::Caller* FairShare::Find(const Flow* flow) {
  const auto found = callers_.find(flow);
  return found == callers_.end() ? nullptr : &found->second;
}

bool FairShare::HadLittle(const Waiting& waiting) {
  const Caller* const caller = Find(waiting.flow);
  if (caller == nullptr || caller->start < time_) return true;
  const auto share = caller->shares.find(waiting.model);
  return caller->users > 0 && (share == caller->shares.end() || share->second.start < caller->time);
}

bool FairShare::Has(const Run& run, const Waiting& waiting) {
  if (run.model_ != waiting.model) return false;
  return std::any_of(run.parts_.begin(), run.parts_.end(), [&](const Run::Part& part) {
    return part.caller->flow.get() == waiting.flow;
  });
}

void FairShare::MoveTimeOfNewcomers(absl::Time now) {
  double most = 0;
  for (Run* run : runs_) {
    if (!run->computes_) return;  // it waits
    Charge(run, now);
    for (const Run::Part& part : run->parts_) most = std::max(most, part.caller->start);
  }
  time_ = std::max(time_, most - absl::ToDoubleSeconds(kSlice));
}

void FairShare::MoveTimes(absl::Span<const Waiting> waiting, const Run* goes_on, absl::Time now) {
  for (const Waiting& work : waiting) {
    Caller* const caller = Find(work.flow);
    // All of the caller's work computed until now.
    if (caller != nullptr && caller->users > 0 && caller->least == kNever &&
        (goes_on == nullptr || !Has(*goes_on, work))) {
      caller->start = std::max(caller->start, time_);
    }
  }
  double least = kNever;
  double most = 0;
  for (Run* run : runs_) {
    Charge(run, now);
    for (const Run::Part& part : run->parts_) {
      part.caller->least = kNever;
      part.caller->most = 0;
    }
  }
  for (const Run* run : runs_) {
    for (const Run::Part& part : run->parts_) {
      most = std::max(most, part.caller->start);
      part.caller->most = std::max(part.caller->most, part.share->start);
      if (run->computes_) continue;
      least = std::min(least, part.caller->start);
      part.caller->least = std::min(part.caller->least, part.share->start);
    }
  }
  for (const Waiting& work : waiting) {
    const Order order = OrderOf(work);
    least = std::min(least, order.first);
    if (Caller* const caller = Find(work.flow); caller != nullptr && caller->users > 0) {
      caller->least = std::min(caller->least, order.second);
    }
  }
  // Where nobody waits the time is a slice behind the largest, so that who leaves for a moment
  // loses nothing by it.
  const double slice = absl::ToDoubleSeconds(kSlice);
  time_ = std::max(time_, least < kNever ? least : most - slice);
  for (const Run* run : runs_) {
    for (const Run::Part& part : run->parts_) {
      Caller& caller = *part.caller;
      caller.start = std::max(caller.start, time_ - kMostCredit);
      caller.time =
          std::max(caller.time, caller.least < kNever ? caller.least : caller.most - slice);
      part.share->start = std::max(part.share->start, caller.time - kMostCredit);
    }
  }
}

void FairShare::Drop(absl::Span<const Run::Part> parts) {
  for (const Run::Part& part : parts) {
    if (--part.share->users > 0 || --part.caller->users > 0) continue;
    part.caller->time = std::max(part.caller->time, part.share->start);
  }
}

void FairShare::Forget(const void* model) {
  const auto is_meant = [model](const void* of) { return model == nullptr || of == model; };
  absl::erase_if(callers_, [&](auto& entry) {
    auto& shares = entry.second.shares;
    num_shares_ -= absl::erase_if(shares, [&](const auto& share) {
      return is_meant(share.first) && share.second.users == 0;
    });
    return shares.empty();
  });
}

}  // namespace sru::server::batching
