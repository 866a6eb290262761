#include "server/batching/steps/places.h"

#include <algorithm>
#include <limits>

namespace sru::server::batching {
namespace {

// Lower than the rank of any arrival.
constexpr int64_t kTryingRank = std::numeric_limits<int64_t>::min();

}  // namespace

ScheduledSequence* FlowPlaces::Device::NextDecoding() const {
  ScheduledSequence* best = nullptr;
  for (const DecodeList& list : decoding) {
    ScheduledSequence* const front = list.front();
    if (front != nullptr && (best == nullptr || front->decode_key < best->decode_key)) best = front;
  }
  return best;
}

Places::Places(const std::vector<int>& workers, absl::Duration ageing_interval,
               Admission* admission)
    : admission_(admission), devices_(workers.size()), flows_(ageing_interval) {
  for (size_t i = 0; i < workers.size(); ++i) {
    devices_[i].workers = workers[i];
    devices_[i].lost = workers[i] == 0;
    levels_.num_workers += workers[i];
  }
}

FlowPlaces* Places::PlacesOf(const FlowHandle& flow) {
  FlowPlaces* const places = flows_.Join(flow);
  places->devices.resize(devices_.size());
  return places;
}

void Places::Join(ScheduledSequence* s, FlowPlaces* flow, absl::Time now) {
  s->flow = flow;
  ++s->flow->users;
  ++s->flow->live;
  ++levels_.live;
  s->older = newest_;
  (newest_ == nullptr ? oldest_ : newest_->newer) = s;
  newest_ = s;
  if (s->deadline != absl::InfiniteFuture()) {
    s->expiry()->key = {0, s->deadline, s->number};
    expiry_.Insert(s->expiry());
  }
  Attach(s, now);
}

void Places::Leave(ScheduledSequence* s) {
  Detach(s);
  s->sequence->Rewind();
  CountHeld(s);
  CountRows(s, 0);
  CountLater(s, 0);
  Unbind(s);
  if (s->deadline != absl::InfiniteFuture()) expiry_.Erase(s->expiry());
  (s->older == nullptr ? oldest_ : s->older->newer) = s->newer;
  (s->newer == nullptr ? newest_ : s->newer->older) = s->older;
  --levels_.live;
  --s->flow->live;
  if (s->begun) {
    --levels_.begun;
    --s->flow->begun;
  }
  --s->flow->users;
}

void Places::CountRows(ScheduledSequence* s, int64_t rows) {
  levels_.waiting_rows += rows - s->waiting_rows;
  s->flow->waiting_rows += rows - s->waiting_rows;
  s->waiting_rows = rows;
}

void Places::CountFed(ScheduledSequence* s, int sign) {
  FedWeight& fed = s->device == kAnyDevice ? fresh_ : devices_[s->device].fed;
  const OrderWeight& weight = s->order()->weight;
  fed.sequences += sign;
  fed.weight.tokens += sign * weight.tokens;
  fed.weight.sequences += sign * weight.sequences;
}

void Places::CountLater(ScheduledSequence* s, int64_t rows) {
  if (s->begun) levels_.begun_later += rows - s->later;
  s->later = rows;
}

void Places::CountHeld(ScheduledSequence* s) {
  const bool holds = s->sequence->holds_state();
  levels_.holders += static_cast<int64_t>(holds) - static_cast<int64_t>(s->holds);
  s->holds = holds;
}

void Places::CountStep(const Step& step, int sign) {
  Device& device = devices_[step.device];
  device.running_steps += sign;
  device.running_rows += sign * step.rows;
  levels_.running_steps += sign;
  levels_.running_fed_rows += sign * step.fed_rows;
  levels_.running_decode_rows += sign * (step.rows - step.fed_rows);
}

void Places::Unbind(ScheduledSequence* s) {
  if (s->device == kAnyDevice) return;
  --devices_[s->device].bound;
  devices_[s->device].begun_branches -= s->branches;
  s->flow->begun_branches -= s->branches;
  s->device = kAnyDevice;
}

void Places::Rewind(ScheduledSequence* s) {
  Detach(s);
  s->sequence->Rewind();
  CountHeld(s);
  CountLater(s, s->all_later);
  Unbind(s);
  ++levels_.replayed;
}

void Places::Attach(ScheduledSequence* s, absl::Time now) {
  Detach(s);
  s->need = s->sequence->need();
  CountRows(s, s->need.decoding ? 0 : s->need.rows);
  if (s->paused && !s->suspended) {
    s->place = Place::kPaused;
    ++levels_.paused;
    if (s->begun) ++levels_.paused_begun;
    return;
  }
  if (s->device != kAnyDevice && s->need.decoding) {
    Device& device = devices_[s->device];
    s->decode_key = {admission_->Rank(now, s->priority), absl::InfinitePast(),
                     admission_->TakeNumber()};
    s->flow->devices[s->device].decoding[static_cast<size_t>(s->priority)].PushBack(s);
    flows_.Insert(s->flow, s->priority, now);
    ++device.decode_sequences;
    device.decode_rows += s->need.rows;
    s->place = Place::kDecoding;
    return;
  }
  OrderNode* const node = s->order();
  const int64_t rank = s->trying ? kTryingRank : admission_->Rank(s->arrival, s->priority);
  node->key = {rank, s->deadline, s->number};
  // In place of a number of sequences, the rows that follow; those of what has begun are in
  // begun_later.
  node->weight = {s->need.rows, s->begun ? 0 : s->later};
  FedTree(*s).Insert(node);
  CountFed(s, 1);
  flows_.Insert(s->flow, s->priority, now);
  s->place = Place::kFed;
}

void Places::AttachStarved(ScheduledSequence* s) {
  s->need = s->sequence->need();
  CountRows(s, s->need.decoding ? 0 : s->need.rows);
  s->order()->key = {s->holds ? 0 : 1, absl::InfinitePast(), s->number};
  s->order()->weight = {s->need.rows, 1};
  starved_.Insert(s->order());
  s->place = Place::kStarved;
}

void Places::Detach(ScheduledSequence* s) {
  switch (s->place) {
    case Place::kNowhere:
    case Place::kRunning:
      break;
    case Place::kFed:
      FedTree(*s).Erase(s->order());
      CountFed(s, -1);
      flows_.Erase(s->flow, s->priority);
      break;
    case Place::kDecoding: {
      Device& device = devices_[s->device];
      s->flow->devices[s->device].decoding[static_cast<size_t>(s->priority)].Erase(s);
      flows_.Erase(s->flow, s->priority);
      --device.decode_sequences;
      device.decode_rows -= s->need.rows;
      break;
    }
    case Place::kStarved:
      starved_.Erase(s->order());
      break;
    case Place::kPaused:
      --levels_.paused;
      if (s->begun) --levels_.paused_begun;
      break;
  }
  s->place = Place::kNowhere;
}

void Places::Take(ScheduledSequence* s, Step* step, int64_t rows) {
  Detach(s);
  s->place = Place::kRunning;
  s->granted = static_cast<int>(rows);
  if (s->device == kAnyDevice) {
    s->device = step->device;
    ++devices_[s->device].bound;
    devices_[s->device].begun_branches += s->branches;
    s->flow->begun_branches += s->branches;
  }
  if (!s->begun) {
    s->begun = true;
    ++levels_.begun;
    ++s->flow->begun;
    levels_.begun_later += s->later;
  }
  step->Add(s, s->granted, s->flow->flow);
}

void Places::Return(ScheduledSequence* s) {
  s->place = Place::kNowhere;
  CountHeld(s);
  s->need = s->sequence->need();
}

void Places::Advance(ScheduledSequence* s) {
  // It is not done before it says so.
  if (s->need.decoding && s->later > 0) CountLater(s, std::max<int64_t>(s->later - s->granted, 1));
  s->need = s->sequence->need();
}

int Places::LoseDevice(int device) {
  devices_[device].lost = true;
  levels_.num_workers -= devices_[device].workers;
  return levels_.num_workers;
}

}  // namespace sru::server::batching
