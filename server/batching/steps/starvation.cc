#include "server/batching/steps/starvation.h"

#include <algorithm>

namespace sru::server::batching {

bool Starvation::Starve(ScheduledSequence* s, absl::Time now) {
  s->starved_since = std::min(s->starved_since, now);
  const bool alone = places_.levels().holders - static_cast<int64_t>(s->holds) == 0;
  if (alone && places_.levels().running_steps == 0 && now - s->starved_since >= kLoneWait) {
    return false;
  }
  if (s->paused) {
    places_.Attach(s, now);
  } else {
    retry_at_ = std::min(retry_at(), now + kAllocationRetry);
    places_.AttachStarved(s);
  }
  return true;
}

void Starvation::Revive(int64_t count, absl::Time now) {
  for (; count > 0 && !places_.starved().empty(); --count) {
    ScheduledSequence* const s = ScheduledSequence::OfOrder(places_.starved().First());
    s->trying = true;
    places_.Attach(s, now);
  }
}

void Starvation::Retry(absl::Time now) {
  if (retry_at() > now) return;
  retry_at_ = now + kAllocationRetry;
  Revive(1, now);
}

void Starvation::OnStepEnd(int64_t tried, bool in_vain, int64_t most, absl::Time now) {
  if (in_vain) {
    tries_ = 1;
  } else if (tried > 0) {
    // Each success lets twice as many try, so that a short want of memory is soon forgotten.
    tries_ = std::min(2 * tries_, most);
    Revive(tries_, now);
  }
  BreakDeadlock(in_vain, now);
}

void Starvation::BreakDeadlock(bool tried_in_vain, absl::Time now) {
  if (places_.starved().empty() || places_.levels().running_steps > 0) return;
  for (const Places::Device& device : places_.devices()) {
    if (device.decode_sequences > 0 || device.fed.sequences > 0) return;
  }
  if (!places_.trying().empty()) return;
  if (!tried_in_vain) return Revive(1, now);
  ScheduledSequence* const first = ScheduledSequence::OfOrder(places_.starved().First());
  ScheduledSequence* last = nullptr;  // to arrive, of those that can give up memory
  for (ScheduledSequence* s = places_.newest(); s != nullptr && last == nullptr; s = s->older) {
    if (s != first && s->holds) last = s;
  }
  if (last == nullptr) return;  // the timer tries again
  const bool was_starved = last->place == Place::kStarved;
  places_.Rewind(last);
  if (was_starved) {
    Starve(last, now);  // it is not alone
  } else {
    places_.Attach(last, now);
  }
  Revive(1, now);
}

}  // namespace sru::server::batching
