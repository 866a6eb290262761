#include "server/batching/steps/step_composer.h"

#include <algorithm>

namespace sru::server::batching {
namespace {

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

int64_t StepComposer::UsefulSteps(const Device& device) const {
  const int64_t rows = device.running_rows + device.decode_rows + device.fed.weight.tokens +
                       (places_.starved().empty() ? places_.fresh().weight.tokens : 0);
  return std::clamp<int64_t>(DivideUp(rows, options_.rows_per_step), 1,
                             std::max(1, device.workers));
}

bool StepComposer::MayBeginHere(const Device& device, const ScheduledSequence& first) const {
  // Retried sequences continue; all others wait behind the starved ones.
  if (!places_.starved().empty()) return first.trying;
  // Sequences stay where they begin, so the devices get equally many.
  constexpr int64_t kSlack = 8;
  for (const Device& other : places_.devices()) {
    if (!other.lost && device.bound > other.bound + kSlack) return false;
  }
  if (device.begun_branches == 0) return true;
  // What is urgent does not wait for others to end.
  const bool urgent = first.priority == Priority::kHigh || first.flow->begun_branches == 0;
  const int64_t begun = urgent ? device.begun_branches / 2 : device.begun_branches;
  return first.branches <= options_.max_begun_branches - begun;
}

bool StepComposer::MayStart(int device_index) const {
  const Device& device = places_.devices()[device_index];
  if (device.lost || device.running_steps >= UsefulSteps(device)) return false;
  return device.decode_sequences > 0 || device.fed.sequences > 0 ||
         (places_.fresh().sequences > 0 && NextFed(device_index) != nullptr);
}

void StepComposer::StartDecoding(int device) {
  FairOrder<FlowPlaces>& flows = places_.flows();
  flows.Clear();
  for (FlowPlaces* flow : flows.active()) {
    const ScheduledSequence* const first = flow->devices[device].NextDecoding();
    if (first != nullptr) flows.Add(flow, first->priority, first->decode_key.number);
  }
  flows.Start();
}

const Flow* StepComposer::FirstFlow(int device, absl::Time now) {
  FairOrder<FlowPlaces>& flows = places_.flows();
  if (flows.active().size() == 1) return flows.active().front()->flow.get();
  flows.Begin(now);
  StartDecoding(device);
  if (const FlowPlaces* const flow = flows.Next(); flow != nullptr) return flow->flow.get();
  const ScheduledSequence* const fed = NextFed(device);
  return fed == nullptr ? nullptr : fed->flow->flow.get();
}

void StepComposer::AddDecoding(Step* step, int64_t most_rows, int64_t most_sequences) {
  FairOrder<FlowPlaces>& flows = places_.flows();
  StartDecoding(step->device);
  for (FlowPlaces* flow = flows.Next(); flow != nullptr; flow = flows.Next()) {
    const FlowPlaces::Device& there = flow->devices[step->device];
    ScheduledSequence* const best = there.NextDecoding();
    // A sequence of more branches than a step has room for gets one to itself; the runner divides
    // it.
    const bool fits = best->need.rows <= most_rows && best->need.branches <= most_sequences;
    if (!fits && !step->shares.empty()) {
      flows.Pop();
      continue;
    }
    most_rows -= best->need.rows;
    most_sequences -= best->need.branches;
    places_.Take(best, step, best->need.rows);
    flows.Took(best->need.rows);
    if (most_rows <= 0 || most_sequences <= 0) return;
    if (const ScheduledSequence* const next = there.NextDecoding(); next != nullptr) {
      flows.Replace(next->priority, next->decode_key.number);
    } else {
      flows.Pop();
    }
  }
}

ScheduledSequence* StepComposer::First(const Device& device, const OrderTree& fed,
                                       const OrderTree& fresh) const {
  OrderNode* node = fed.First();
  if (OrderNode* const other = fresh.First();
      other != nullptr && (node == nullptr || other->key < node->key) &&
      MayBeginHere(device, *ScheduledSequence::OfOrder(other))) {
    node = other;
  }
  return node == nullptr ? nullptr : ScheduledSequence::OfOrder(node);
}

ScheduledSequence* StepComposer::NextFed(int device_index) const {
  FairOrder<FlowPlaces>& flows = places_.flows();
  flows.Clear();
  for (FlowPlaces* flow : flows.active()) {
    const ScheduledSequence* const first = NextFedOf(*flow, device_index);
    if (first != nullptr) flows.Add(flow, first->priority, first->number);
  }
  flows.Start();
  ScheduledSequence* const trying = NextTrying(places_.devices()[device_index]);
  if (trying != nullptr || flows.Next() == nullptr) return trying;
  return NextFedOf(*flows.Next(), device_index);
}

void StepComposer::AddFed(Step* step, int64_t most_rows, int64_t room, int64_t most_sequences) {
  FairOrder<FlowPlaces>& flows = places_.flows();
  const Device& device = places_.devices()[step->device];
  NextFed(step->device);
  bool first = true;
  while (most_rows > 0 && most_sequences > 0) {
    ScheduledSequence* const trying = NextTrying(device);
    FlowPlaces* const flow = trying == nullptr ? flows.Next() : nullptr;
    if (trying == nullptr && flow == nullptr) return;
    ScheduledSequence* const s = flow == nullptr ? trying : NextFedOf(*flow, step->device);
    if (s == nullptr) {  // it may not begin any more
      flows.Pop();
      continue;
    }
    int64_t rows = std::min(s->need.rows, most_rows);
    if (s->need.whole && rows < s->need.rows) {
      if (!first || s->need.rows > room) {
        if (flow == nullptr) return;
        flows.Pop();
        continue;
      }
      rows = s->need.rows;
    }
    first = false;
    most_rows -= rows;
    most_sequences -= std::min<int64_t>(s->need.branches, rows);
    places_.Take(s, step, rows);
    if (flow == nullptr) continue;
    flows.Took(rows);
    if (const ScheduledSequence* const next = NextFedOf(*flow, step->device); next != nullptr) {
      flows.Replace(next->priority, next->number);
    } else {
      flows.Pop();
    }
  }
}

int64_t StepComposer::StepsToStart(int device_index) const {
  const Device& device = places_.devices()[device_index];
  return MayStart(device_index) ? UsefulSteps(device) - device.running_steps : 0;
}

std::unique_ptr<Step> StepComposer::Compose(int device_index, absl::Time now) {
  Device& device = places_.devices()[device_index];
  if (!MayStart(device_index)) return nullptr;
  FairOrder<FlowPlaces>& flows = places_.flows();
  flows.Begin(now);
  auto step = std::make_unique<Step>(device_index, now);
  const int64_t most_sequences = options_.max_step_sequences;
  // Under the lock it is quicker to allocate once.
  const auto most = static_cast<size_t>(std::min(most_sequences, places_.levels().live));
  step->shares.reserve(most);
  step->sequences.reserve(most);

  // Other workers that this one leaves something to.
  const int64_t free = UsefulSteps(device) - device.running_steps;
  const int64_t budget = options_.max_step_tokens;
  const ScheduledSequence* const next = NextFed(device_index);
  const bool feed = next != nullptr;
  // Room that is left for what is fed. With room for one row only, or for little else, the two take
  // turns.
  int64_t left_rows = feed ? std::clamp<int64_t>(budget / 4, 1, kLeastPortion) : 0;
  if (feed && next->need.whole) left_rows = std::max(left_rows, next->need.rows);
  const int64_t left_sequences = feed ? 1 : 0;
  const bool turns = feed && (budget < 2 * left_rows || most_sequences <= left_sequences);
  const bool decode = device.decode_sequences > 0 && !(turns && !device.fed_last);
  device.fed_last = turns && !decode;
  int64_t decode_rows = 0;
  if (decode) {
    const int64_t share =
        std::max<int64_t>(DivideUp(device.decode_rows, free), options_.rows_per_step);
    int64_t most_rows = turns ? budget : budget - left_rows;
    if (flows.contested(now) && decode_speed_.known()) {
      const int64_t piece = decode_speed_.TokensWithin(absl::ToDoubleSeconds(kStepPiece));
      most_rows = std::min<int64_t>(most_rows, std::max<int64_t>(piece, options_.rows_per_step));
    }
    AddDecoding(step.get(), std::min(share, most_rows),
                turns ? most_sequences : most_sequences - left_sequences);
    decode_rows = step->rows;
  }
  // A worker that is free feeds the rest, and this one goes on with the next tokens.
  const bool leave = decode_rows > 0 && free > 1;
  if (feed && !leave && !(turns && decode_rows > 0)) {
    const int64_t room = budget - step->rows;
    AddFed(step.get(), std::min(Portion(decode_rows), room), room,
           most_sequences - static_cast<int64_t>(step->shares.size()));
  }

  places_.StartStep(*step);
  return step;
}

int64_t StepComposer::Portion(int64_t decode_rows) const {
  if (decode_rows == 0) return options_.max_step_tokens;
  double rows = kLeastPortion;
  const SpeedModel& fed_speed = admission_.speed();
  if (fed_speed.known() && decode_speed_.known()) {
    const double more = (kSlowestStep - 1) * decode_speed_.Seconds(decode_rows, 1);
    const double per_row = fed_speed.Seconds(1, 0);
    if (per_row > 0) rows = std::max(rows, more / per_row);
  }
  return static_cast<int64_t>(std::min<double>(rows, options_.max_step_tokens));
}

StepComposer::Levels StepComposer::levels(const Flow* flow, absl::Time /*now*/) const {
  const Places::Levels& there = places_.levels();
  Levels levels;
  levels.waiting = {there.waiting_rows, there.live - there.begun};
  levels.streams = there.live;
  if (const FlowPlaces* const own = places_.flows().Find(flow); own != nullptr) {
    levels.own = {own->waiting_rows, own->live - own->begun};
    levels.own_streams = own->live;
  }
  levels.share = places_.flows().ShareOf(flow);
  levels.idle = there.live == there.paused;
  return levels;
}

void StepComposer::Learn(const Step& step, int64_t rows, absl::Duration busy) {
  (step.fed_rows > 0 ? admission_.speed() : decode_speed_)
      .AddBatch(rows, absl::ToDoubleSeconds(busy));
}

StepComposer::Prediction StepComposer::Predict(const OrderKey& key, const AdmissionRequest& request,
                                               absl::Time /*now*/) const {
  OrderWeight own;
  OrderWeight others = AllFed();
  if (const FlowPlaces* const flow = places_.flows().Find(request.flow); flow != nullptr) {
    own = flow->fresh.Before(key);
    others -= flow->fresh.total();
    for (const FlowPlaces::Device& device : flow->devices) {
      own += device.fed.Before(key);
      others -= device.fed.total();
    }
  }
  OrderWeight ahead = own;
  ahead += places_.flows().Before(request.flow, request.priority, own.tokens + request.size.tokens,
                                  others);
  Prediction prediction;
  if (options_.result_at_end) {
    prediction.outcome = prediction.deadline = SecondsToEnd(ahead, request);
  } else {
    prediction.outcome = SecondsToResult(ahead, request.size.tokens, 1);
    prediction.deadline = request.least_steps == 1
                              ? prediction.outcome
                              : SecondsToResult(ahead, request.size.tokens, request.least_steps);
  }
  return prediction;
}

double StepComposer::BacklogSeconds(absl::Time /*now*/) const {
  return options_.result_at_end ? SecondsToEnd(AllFed(), AdmissionRequest())
                                : SecondsToResult(AllFed(), 0, 1);
}

OrderWeight StepComposer::AllFed() const {
  OrderWeight all = places_.fresh().weight;
  for (const Device& device : places_.devices()) all += device.fed.weight;
  return all;
}

double StepComposer::SecondsToResult(const OrderWeight& ahead, int64_t rows,
                                     int least_steps) const {
  const Places::Levels& levels = places_.levels();
  int64_t decode_rows = levels.running_decode_rows;  // of sequences that are not paused
  for (const Device& device : places_.devices()) {
    decode_rows += device.decode_rows;
  }
  const int64_t work = ahead.tokens + rows;
  // With a second worker, what is fed goes in steps of its own.
  const int64_t portion = levels.num_workers > 1 ? options_.max_step_tokens : Portion(decode_rows);
  const int64_t steps = std::max<int64_t>(1, DivideUp(work, portion));
  const int64_t beside = levels.num_workers > 1 ? 0 : decode_rows;
  const SpeedModel& fed_speed = admission_.speed();
  const double total = fed_speed.Seconds(work + steps * beside, steps);
  const double last = fed_speed.Seconds(std::min(work, portion) + beside, 1);
  const int workers = std::max(1, levels.num_workers);
  double seconds = (total - last) / workers + last;
  // Until a worker is free.
  if (levels.running_steps >= workers) {
    const SpeedModel& speed = levels.running_fed_rows > 0 ? fed_speed : decode_speed_;
    seconds +=
        speed.Seconds(levels.running_fed_rows + levels.running_decode_rows, levels.running_steps) /
        workers;
  }
  return seconds + (least_steps - 1) * decode_speed_.Seconds(decode_rows + 1, 1);
}

double StepComposer::SecondsToEnd(const OrderWeight& ahead, const AdmissionRequest& request) const {
  // The rows of all that has begun and of what begins earlier come before, as far as they fit into
  // the same steps.
  const SpeedModel& speed = decode_speed_.known() ? decode_speed_ : admission_.speed();
  const int64_t in_step = std::min(options_.max_step_tokens, options_.max_step_sequences);
  const int64_t all = places_.levels().begun_later + ahead.sequences + request.later_rows;
  const int64_t steps = std::max<int64_t>(request.least_steps, DivideUp(all, in_step));
  const double together = speed.Seconds(std::min(all, steps * in_step), steps) /
                          std::max(1, places_.levels().num_workers);
  const double alone = speed.Seconds(request.later_rows, request.least_steps);
  return SecondsToResult(ahead, request.size.tokens, 1) + std::max(together, alone);
}

}  // namespace sru::server::batching
