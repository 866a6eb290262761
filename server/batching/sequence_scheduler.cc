#include "server/batching/sequence_scheduler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "server/base/deferred_work.h"
#include "server/batching/admission.h"
#include "server/batching/answer_group.h"
#include "server/batching/order_tree.h"
#include "server/batching/speed_model.h"

namespace sru::server::batching {
namespace {

constexpr int kAnyDevice = -1;
constexpr size_t kNumPriorities = 3;
// A sequence may be in this many steps that lose their device.
constexpr int kMaxRuns = 2;
// So many sinks are worth the waking of another worker, which starts the next step meanwhile.
constexpr size_t kManyDeliveries = 8;
// Lower than the rank of any arrival.
constexpr int64_t kTryingRank = std::numeric_limits<int64_t>::min();

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Where a sequence is.
enum class Place {
  kNowhere,   // ended, or not there yet
  kFed,       // in a tree of those that wait to be fed
  kDecoding,  // in a list of those that wait for their next row
  kStarved,   // in the tree of those that wait for memory
  kPaused,
  kRunning,  // in a step
};

struct OrderHook : OrderNode {};
struct ExpiryHook : OrderNode {};

}  // namespace

// All fields but `sequence`, which the step that it is in uses, are guarded by the scheduler's mutex.
class ScheduledSequence : public OrderHook, public ExpiryHook {
 public:
  std::unique_ptr<StepSequence> sequence;
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time arrival;
  uint64_t number = 0;

  Place place = Place::kNowhere;
  StepNeed need;
  int device = kAnyDevice;
  int granted = 0;     // rows in the step that it is in
  bool begun = false;  // it has been in a step
  bool paused = false;
  bool suspended = false;
  bool holds = false;     // memory, after its last step
  bool trying = false;    // it was starved, and is in its first step since
  bool recorded = false;  // its first result has been counted
  int lost_runs = 0;
  absl::Time starved_since = absl::InfiniteFuture();
  int64_t waiting_rows = 0;  // its part of the total
  int branches = 1;          // as the request says
  int64_t all_later = 0;     // rows by which it is expected to go on, with result_at_end
  int64_t later = 0;  // of these, those that are left; its part of the total, once it has begun
  absl::Status end_status;  // why it is to end after the step that it is in
  double predicted_seconds = 0;
  RequestTimes times;

  OrderKey decode_key;
  ScheduledSequence* previous = nullptr;  // in a list of those that decode
  ScheduledSequence* next = nullptr;
  ScheduledSequence* older = nullptr;  // in the list of all
  ScheduledSequence* newer = nullptr;
  // Keeps it alive until its end.
  std::shared_ptr<ScheduledSequence> self;

  OrderNode* order() { return static_cast<OrderHook*>(this); }
  OrderNode* expiry() { return static_cast<ExpiryHook*>(this); }
  static ScheduledSequence* OfOrder(OrderNode* node) {
    return static_cast<ScheduledSequence*>(static_cast<OrderHook*>(node));
  }
  static ScheduledSequence* OfExpiry(OrderNode* node) {
    return static_cast<ScheduledSequence*>(static_cast<ExpiryHook*>(node));
  }
};

namespace {

// Sequences that have ended, before they are told.
using Endings = std::vector<SequenceHandle>;

// Without a lock. Nothing of the scheduler is used: the last one may be its end.
void Tell(Endings endings) {
  for (SequenceHandle& ending : endings) {
    const SequenceHandle ended = std::move(ending);  // freed once it is told
    ended->sequence->End(ended->end_status, ended->times);
  }
}

// Sequences of one priority that wait for their next row, those that have waited longest first.
class DecodeList {
 public:
  ScheduledSequence* front() const { return first_; }
  void PushBack(ScheduledSequence* sequence) {
    sequence->previous = last_;
    sequence->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = sequence;
    last_ = sequence;
  }
  void Erase(ScheduledSequence* sequence) {
    (sequence->previous == nullptr ? first_ : sequence->previous->next) = sequence->next;
    (sequence->next == nullptr ? last_ : sequence->next->previous) = sequence->previous;
  }

 private:
  ScheduledSequence* first_ = nullptr;
  ScheduledSequence* last_ = nullptr;
};

class StepImpl : public Step {
 public:
  std::vector<StepShare>& shares() override { return shares_; }
  int device() const override { return device_; }
  int fed_rows() const override { return fed_rows_; }
  int rows() const override { return rows_; }

  void Add(ScheduledSequence* sequence, int rows) {
    StepShare share;
    share.sequence = sequence->sequence.get();
    share.rows = rows;
    shares_.push_back(std::move(share));
    sequences_.push_back(sequence->self);
    rows_ += rows;
    if (!sequence->need.decoding) fed_rows_ += rows;
  }
  std::vector<StepShare> shares_;
  std::vector<SequenceHandle> sequences_;  // [share]
  int device_ = 0;
  int fed_rows_ = 0;
  int rows_ = 0;
  absl::Time start_;
};

AdmissionOptions AdmissionOptionsOf(const SchedulerOptions& options) {
  AdmissionOptions admission;
  admission.most = {options.max_waiting_rows, options.max_waiting_sequences};
  admission.max_streams = options.max_streams;
  admission.by_deadline = options.admission_by_deadline;
  admission.ageing_interval = options.ageing_interval;
  admission.in_steps = true;
  admission.field = options.words.fed;
  return admission;
}

class SchedulerImpl : public SequenceScheduler, private AdmissionLoad {
 public:
  SchedulerImpl(const SchedulerOptions& options, const Clock* clock)
      : options_(options),
        admission_options_(AdmissionOptionsOf(options)),
        clock_(clock),
        admission_(admission_options_, clock->Now()) {
    for (const int workers : options.workers) {
      devices_.emplace_back();
      devices_.back().workers = workers;
      devices_.back().lost = workers == 0;
      num_workers_ += workers;
    }
  }
  ~SchedulerImpl() override;

  absl::StatusOr<SequenceHandle> Submit(SequenceRequest&& request,
                                        absl::Duration* retry_after) override;
  absl::StatusOr<std::vector<SequenceHandle>> SubmitTogether(
      std::vector<SequenceRequest>&& requests, absl::Duration* retry_after) override;
  absl::Status CheckAdmission(int64_t rows, int64_t sequences, Priority priority,
                              absl::Time deadline, absl::Duration* retry_after) override;
  void Cancel(const SequenceHandle& handle) noexcept override;
  void Pause(const SequenceHandle& handle) override;
  void Resume(const SequenceHandle& handle) override;
  std::unique_ptr<Step> TryTakeStep(int device) override;
  std::unique_ptr<Step> TakeStep(int device) override;
  void FinishStep(std::unique_ptr<Step> step, const absl::Status& status,
                  absl::Duration compute) override;
  void LoseDevice(int device, const absl::Status& status) override;
  void Close() override;
  void Suspend(const absl::Status& status) override;
  SchedulerStats stats() const override;

 private:
  struct Device {
    int workers = 0;
    bool lost = false;
    int64_t bound = 0;           // sequences that have begun here
    int64_t begun_branches = 0;  // of these
    int running_steps = 0;
    int64_t running_rows = 0;
    bool fed_last = false;  // the last step had room for what is fed only
    OrderTree fed;          // that have begun here
    std::array<DecodeList, kNumPriorities> decoding;
    int64_t decode_sequences = 0;  // in the lists
    int64_t decode_rows = 0;
    int waiting_workers = 0;
    int woken_workers = 0;
    CondVar work;
  };

  // Of `count` requests, which are accepted together or not at all.
  absl::Status Admit(SequenceRequest* requests, SequenceHandle* handles, size_t count,
                     absl::Duration* retry_after);
  Levels levels() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Prediction Predict(const OrderKey& key, const AdmissionRequest& request,
                     absl::Time now) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double BacklogSeconds(absl::Time now) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until the end, where results come at the end only.
  double PredictEnd(const OrderKey& key, const AdmissionRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until the first result, or `least_steps` - 1 steps more.
  double PredictSeconds(const OrderKey& key, int64_t rows, int least_steps) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Rows of sequences that decode and are not paused.
  int64_t DecodeRows() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Rows to be fed beside `decode_rows` others.
  int64_t Portion(int64_t decode_rows) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Puts a sequence that is nowhere where its need says.
  void Attach(ScheduledSequence* s, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes it out of wherever it waits.
  void Detach(ScheduledSequence* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountRows(ScheduledSequence* s, int64_t rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLater(ScheduledSequence* s, int64_t rows) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountHeld(ScheduledSequence* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unbind(ScheduledSequence* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Rewind(ScheduledSequence* s) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is in no step and has been detached, or is in the one that is handed back.
  void End(ScheduledSequence* s, const absl::Status& status, absl::Time now, Endings* endings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndExpired(absl::Time now, Endings* endings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ExpiredStatus(const ScheduledSequence& s, absl::Time now) const;
  void Starve(ScheduledSequence* s, absl::Time now, Endings* endings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Tries the first `count` starved ones again.
  void Revive(int64_t count, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // If everything waits for memory, tries one at once; if that has been tried in vain, makes some.
  void BreakDeadlock(bool tried_in_vain, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(ScheduledSequence* s, const absl::Status& status, int device, absl::Time now,
              Endings* endings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RecordResult(ScheduledSequence* s, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // How many steps of a device may run at a time with the work that there is.
  int64_t UsefulSteps(const Device& device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayBeginHere(const Device& device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayStart(const Device& device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Null if no step may start.
  std::unique_ptr<StepImpl> Build(int device, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddDecoding(Device& device, StepImpl* step, int64_t most_rows, int64_t most_sequences)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The sequence that is fed next on the device; null if there is none.
  ScheduledSequence* NextFed(const Device& device) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // `most_rows`, or all of a sequence that is fed whole if it is the first and has at most `room`.
  void AddFed(Device& device, StepImpl* step, int64_t most_rows, int64_t room,
              int64_t most_sequences) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Take(ScheduledSequence* s, StepImpl* step, int64_t rows)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return admission_.closed() && live_ == 0;
  }
  // Wakes workers for what may start. One step of `device` is left to a worker that comes by itself.
  void Wake(int device = kAnyDevice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (Device& device : devices_) device.work.SignalAll();
  }

  const SchedulerOptions options_;
  const AdmissionOptions admission_options_;
  const Clock* const clock_;

  mutable Mutex mutex_;
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  std::deque<Device> devices_ ABSL_GUARDED_BY(mutex_);
  int num_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status suspended_ ABSL_GUARDED_BY(mutex_);  // not OK after Suspend()
  OrderTree fresh_ ABSL_GUARDED_BY(mutex_);         // that have not begun anywhere
  OrderTree expiry_ ABSL_GUARDED_BY(mutex_);
  OrderTree starved_ ABSL_GUARDED_BY(mutex_);
  int64_t tries_ ABSL_GUARDED_BY(mutex_) = 1;  // starved ones that are tried together
  absl::Time retry_at_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  ScheduledSequence* oldest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  ScheduledSequence* newest_ ABSL_GUARDED_BY(mutex_) = nullptr;

  int64_t live_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t paused_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t paused_begun_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t holders_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t waiting_rows_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t begun_later_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t running_decode_rows_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t running_fed_rows_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t running_steps_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of steps that fed no sequences. Those that did are in admission_: apart, since after many steps of a
  // few rows one model would not know any more how long a large one takes.
  SpeedModel decode_speed_ ABSL_GUARDED_BY(mutex_);
  SchedulerStats counts_ ABSL_GUARDED_BY(mutex_);  // the counters only
};

SchedulerImpl::~SchedulerImpl() {
  MutexLock lock(&mutex_);
  if (live_ == 0 && running_steps_ == 0) return;
  std::fprintf(stderr,
               "SequenceScheduler destroyed while %lld sequences and %lld steps are there; "
               "Suspend() them and run the rest first\n",
               static_cast<long long>(live_), static_cast<long long>(running_steps_));
  std::abort();
}

absl::StatusOr<SequenceHandle> SchedulerImpl::Submit(SequenceRequest&& request,
                                                     absl::Duration* retry_after) {
  SequenceHandle handle;
  absl::Status status = Admit(&request, &handle, 1, retry_after);
  if (!status.ok()) return status;
  return handle;
}

absl::StatusOr<std::vector<SequenceHandle>> SchedulerImpl::SubmitTogether(
    std::vector<SequenceRequest>&& requests, absl::Duration* retry_after) {
  std::vector<SequenceHandle> handles(requests.size());
  absl::Status status = Admit(requests.data(), handles.data(), requests.size(), retry_after);
  if (!status.ok()) return status;
  return handles;
}

absl::Status SchedulerImpl::Admit(SequenceRequest* requests, SequenceHandle* handles, size_t count,
                                  absl::Duration* retry_after) {
  AdmissionRequest together;
  together.priority = requests[0].priority;
  together.deadline = requests[0].deadline;
  for (size_t i = 0; i < count; ++i) {
    handles[i] = std::make_shared<ScheduledSequence>();
    ScheduledSequence* const s = handles[i].get();
    const StepNeed need = requests[i].sequence->need();
    if (need.whole && need.rows > options_.max_step_tokens) {
      return absl::InvalidArgumentError(
          absl::StrCat(options_.words.fed, ": expected at most ", options_.max_step_tokens,
                       " tokens each (max_batch_tokens), found ", need.rows));
    }
    s->branches = requests[i].branches;
    if (options_.result_at_end) {
      s->later = s->all_later = int64_t{requests[i].branches} * requests[i].least_steps;
    }
    together.size += {need.rows, 1};
    together.least_steps = std::max(together.least_steps, requests[i].least_steps);
    together.later_rows += s->all_later;
  }
  if (absl::Status status = Admission::CheckSize(admission_options_, together.size); !status.ok()) {
    return status;
  }
  Verdict verdict;
  {
    MutexLock lock(&mutex_);
    verdict = admission_.Judge(together, clock_->Now(), *this);
    for (size_t i = 0; i < count && verdict.accepted(); ++i) {
      ScheduledSequence* const s = handles[i].get();
      s->sequence = std::move(requests[i].sequence);
      s->priority = requests[0].priority;
      s->deadline = requests[0].deadline;
      s->arrival = verdict.now;
      s->number = admission_.TakeNumber();
      s->predicted_seconds = verdict.predicted_seconds;
      s->self = handles[i];
      ++live_;
      s->older = newest_;
      (newest_ == nullptr ? oldest_ : newest_->newer) = s;
      newest_ = s;
      if (s->deadline != absl::InfiniteFuture()) {
        s->expiry()->key = {0, s->deadline, s->number};
        expiry_.Insert(s->expiry());
      }
      Attach(s, verdict.now);
    }
    if (verdict.accepted()) Wake();
  }
  return verdict.ToStatus(retry_after);
}

absl::Status SchedulerImpl::CheckAdmission(int64_t rows, int64_t sequences, Priority priority,
                                           absl::Time deadline, absl::Duration* retry_after) {
  Verdict verdict;
  {
    MutexLock lock(&mutex_);
    verdict = admission_.Judge({{rows, sequences}, priority, deadline}, clock_->Now(), *this);
  }
  return verdict.ToStatus(retry_after);
}

SchedulerImpl::Levels SchedulerImpl::levels() const {
  Levels levels;
  levels.waiting = {waiting_rows_, live_ - begun_};
  levels.streams = live_;
  levels.idle = live_ - paused_ == 0;
  return levels;
}

SchedulerImpl::Prediction SchedulerImpl::Predict(const OrderKey& key,
                                                 const AdmissionRequest& request,
                                                 absl::Time /*now*/) const {
  Prediction prediction;
  if (options_.result_at_end) {
    prediction.outcome = prediction.deadline = PredictEnd(key, request);
  } else {
    prediction.outcome = PredictSeconds(key, request.size.tokens, 1);
    prediction.deadline = request.least_steps == 1
                              ? prediction.outcome
                              : PredictSeconds(key, request.size.tokens, request.least_steps);
  }
  return prediction;
}

double SchedulerImpl::BacklogSeconds(absl::Time /*now*/) const {
  const OrderKey last = {std::numeric_limits<int64_t>::max(), absl::InfiniteFuture(), 0};
  return options_.result_at_end ? PredictEnd(last, AdmissionRequest()) : PredictSeconds(last, 0, 1);
}

int64_t SchedulerImpl::DecodeRows() const {
  int64_t rows = running_decode_rows_;
  for (const Device& device : devices_) rows += device.decode_rows;
  return rows;
}

int64_t SchedulerImpl::Portion(int64_t decode_rows) const {
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

double SchedulerImpl::PredictSeconds(const OrderKey& key, int64_t rows, int least_steps) const {
  int64_t ahead = fresh_.Before(key).tokens;
  for (const Device& device : devices_) ahead += device.fed.Before(key).tokens;
  const int64_t decode_rows = DecodeRows();
  const int64_t work = ahead + rows;
  // With a second worker, what is fed goes in steps of its own.
  const int64_t portion = num_workers_ > 1 ? options_.max_step_tokens : Portion(decode_rows);
  const int64_t steps = std::max<int64_t>(1, DivideUp(work, portion));
  const int64_t beside = num_workers_ > 1 ? 0 : decode_rows;
  const SpeedModel& fed_speed = admission_.speed();
  const double total = fed_speed.Seconds(work + steps * beside, steps);
  const double last = fed_speed.Seconds(std::min(work, portion) + beside, 1);
  const int workers = std::max(1, num_workers_);
  double seconds = (total - last) / workers + last;
  // Until a worker is free.
  if (running_steps_ >= workers) {
    const SpeedModel& speed = running_fed_rows_ > 0 ? fed_speed : decode_speed_;
    seconds += speed.Seconds(running_fed_rows_ + running_decode_rows_, running_steps_) / workers;
  }
  return seconds + (least_steps - 1) * decode_speed_.Seconds(decode_rows + 1, 1);
}

double SchedulerImpl::PredictEnd(const OrderKey& key, const AdmissionRequest& request) const {
  // The rows of all that has begun and of what begins earlier come before, as far as they fit into the
  // same steps.
  const SpeedModel& speed = decode_speed_.known() ? decode_speed_ : admission_.speed();
  const int64_t in_step = std::min(options_.max_step_tokens, options_.max_step_sequences);
  const int64_t all = begun_later_ + fresh_.Before(key).sequences + request.later_rows;
  const int64_t steps = std::max<int64_t>(request.least_steps, DivideUp(all, in_step));
  const double together =
      speed.Seconds(std::min(all, steps * in_step), steps) / std::max(1, num_workers_);
  const double alone = speed.Seconds(request.later_rows, request.least_steps);
  return PredictSeconds(key, request.size.tokens, 1) + std::max(together, alone);
}

void SchedulerImpl::CountRows(ScheduledSequence* s, int64_t rows) {
  waiting_rows_ += rows - s->waiting_rows;
  s->waiting_rows = rows;
}

void SchedulerImpl::CountLater(ScheduledSequence* s, int64_t rows) {
  if (s->begun) begun_later_ += rows - s->later;
  s->later = rows;
}

void SchedulerImpl::CountHeld(ScheduledSequence* s) {
  const bool holds = s->sequence->holds_state();
  holders_ += static_cast<int64_t>(holds) - static_cast<int64_t>(s->holds);
  s->holds = holds;
}

void SchedulerImpl::Unbind(ScheduledSequence* s) {
  if (s->device == kAnyDevice) return;
  --devices_[s->device].bound;
  devices_[s->device].begun_branches -= s->branches;
  s->device = kAnyDevice;
}

void SchedulerImpl::Rewind(ScheduledSequence* s) {
  s->sequence->Rewind();
  CountHeld(s);
  CountLater(s, s->all_later);
  Unbind(s);
  ++counts_.replayed;
}

void SchedulerImpl::Attach(ScheduledSequence* s, absl::Time now) {
  s->need = s->sequence->need();
  CountRows(s, s->need.decoding ? 0 : s->need.rows);
  if (s->paused && !s->suspended) {
    s->place = Place::kPaused;
    ++paused_;
    if (s->begun) ++paused_begun_;
    return;
  }
  if (s->device != kAnyDevice && s->need.decoding) {
    Device& device = devices_[s->device];
    s->decode_key = {admission_.Rank(now, s->priority), absl::InfinitePast(),
                     admission_.TakeNumber()};
    device.decoding[static_cast<size_t>(s->priority)].PushBack(s);
    ++device.decode_sequences;
    device.decode_rows += s->need.rows;
    s->place = Place::kDecoding;
    return;
  }
  OrderNode* const node = s->order();
  const int64_t rank = s->trying ? kTryingRank : admission_.Rank(s->arrival, s->priority);
  node->key = {rank, s->deadline, s->number};
  // In place of a number of sequences, the rows that follow; those of what has begun are in begun_later_.
  node->weight = {s->need.rows, s->begun ? 0 : s->later};
  (s->device == kAnyDevice ? fresh_ : devices_[s->device].fed).Insert(node);
  s->place = Place::kFed;
}

void SchedulerImpl::Detach(ScheduledSequence* s) {
  switch (s->place) {
    case Place::kNowhere:
    case Place::kRunning:
      break;
    case Place::kFed:
      (s->device == kAnyDevice ? fresh_ : devices_[s->device].fed).Erase(s->order());
      break;
    case Place::kDecoding: {
      Device& device = devices_[s->device];
      device.decoding[static_cast<size_t>(s->priority)].Erase(s);
      --device.decode_sequences;
      device.decode_rows -= s->need.rows;
      break;
    }
    case Place::kStarved:
      starved_.Erase(s->order());
      if (starved_.empty()) retry_at_ = absl::InfiniteFuture();
      break;
    case Place::kPaused:
      --paused_;
      if (s->begun) --paused_begun_;
      break;
  }
  s->place = Place::kNowhere;
}

void SchedulerImpl::End(ScheduledSequence* s, const absl::Status& status, absl::Time now,
                        Endings* endings) {
  if (!s->recorded) s->times.queue = now - s->arrival;
  const bool freed = s->holds;
  s->sequence->Rewind();
  CountHeld(s);
  CountRows(s, 0);
  CountLater(s, 0);
  Unbind(s);
  if (s->deadline != absl::InfiniteFuture()) expiry_.Erase(s->expiry());
  (s->older == nullptr ? oldest_ : s->older->newer) = s->newer;
  (s->newer == nullptr ? newest_ : s->newer->older) = s->older;
  --live_;
  if (s->begun) --begun_;
  s->place = Place::kNowhere;
  s->end_status = status;
  endings->push_back(std::move(s->self));
  if (freed) Revive(1, now);
}

absl::Status SchedulerImpl::ExpiredStatus(const ScheduledSequence& s, absl::Time now) const {
  return absl::DeadlineExceededError(
      absl::StrCat("the deadline passed after ", absl::FormatDuration(now - s.arrival), ", ",
                   s.recorded ? options_.words.after_result : options_.words.before_result));
}

void SchedulerImpl::EndExpired(absl::Time now, Endings* endings) {
  const OrderNode* node = expiry_.First();
  while (node != nullptr && node->key.deadline <= now) {
    ScheduledSequence* const s = ScheduledSequence::OfExpiry(const_cast<OrderNode*>(node));
    const OrderKey key = node->key;
    if (s->place != Place::kRunning) {
      ++counts_.expired;
      Detach(s);
      End(s, ExpiredStatus(*s, now), now, endings);
    }
    node = expiry_.After(key);
  }
}

void SchedulerImpl::Cancel(const SequenceHandle& handle) noexcept {
  if (handle == nullptr) return;
  Endings endings;
  {
    MutexLock lock(&mutex_);
    ScheduledSequence* const s = handle.get();
    if (s->place == Place::kNowhere) return;
    const absl::Time now = clock_->Now();
    const bool expired = s->deadline <= now;
    absl::Status status =
        expired ? ExpiredStatus(*s, now) : absl::CancelledError("the caller cancelled the request");
    if (s->place == Place::kRunning) {
      if (!s->end_status.ok()) return;
      s->end_status = std::move(status);
    } else {
      Detach(s);
      End(s, status, now, &endings);
    }
    ++(expired ? counts_.expired : counts_.cancelled);
    if (Idle()) WakeAll();
    Wake();
  }
  Tell(std::move(endings));
}

void SchedulerImpl::Pause(const SequenceHandle& handle) {
  MutexLock lock(&mutex_);
  ScheduledSequence* const s = handle.get();
  if (s == nullptr || s->paused) return;
  s->paused = true;
  if (s->suspended || s->place == Place::kNowhere || s->place == Place::kRunning) return;
  Detach(s);
  Attach(s, clock_->Now());
}

void SchedulerImpl::Resume(const SequenceHandle& handle) {
  MutexLock lock(&mutex_);
  ScheduledSequence* const s = handle.get();
  if (s == nullptr || !s->paused) return;
  s->paused = false;
  if (s->place != Place::kPaused) return;
  Detach(s);
  Attach(s, clock_->Now());
  Wake();
}

void SchedulerImpl::Starve(ScheduledSequence* s, absl::Time now, Endings* endings) {
  s->starved_since = std::min(s->starved_since, now);
  const bool alone = holders_ - static_cast<int64_t>(s->holds) == 0;
  if (alone && running_steps_ == 0 && now - s->starved_since >= kLoneWait) {
    End(s,
        absl::ResourceExhaustedError(
            "memory: there is none for the state of this request, although no other one of this "
            "model holds any; retry later"),
        now, endings);
    return;
  }
  if (s->paused) return Attach(s, now);
  s->need = s->sequence->need();
  CountRows(s, s->need.decoding ? 0 : s->need.rows);
  s->order()->key = {s->holds ? 0 : 1, absl::InfinitePast(), s->number};
  s->order()->weight = {s->need.rows, 1};
  starved_.Insert(s->order());
  s->place = Place::kStarved;
  retry_at_ = std::min(retry_at_, now + kAllocationRetry);
}

void SchedulerImpl::Revive(int64_t count, absl::Time now) {
  for (; count > 0 && !starved_.empty(); --count) {
    ScheduledSequence* const s = ScheduledSequence::OfOrder(starved_.First());
    Detach(s);
    s->trying = true;
    Attach(s, now);
  }
}

void SchedulerImpl::BreakDeadlock(bool tried_in_vain, absl::Time now) {
  if (starved_.empty() || running_steps_ > 0) return;
  for (const Device& device : devices_) {
    if (device.decode_sequences > 0 || !device.fed.empty()) return;
  }
  if (!fresh_.empty() && ScheduledSequence::OfOrder(fresh_.First())->trying) return;
  if (!tried_in_vain) return Revive(1, now);
  ScheduledSequence* const first = ScheduledSequence::OfOrder(starved_.First());
  ScheduledSequence* last = nullptr;  // to arrive, of those that can give up memory
  for (ScheduledSequence* s = newest_; s != nullptr && last == nullptr; s = s->older) {
    if (s != first && s->holds) last = s;
  }
  if (last == nullptr) return;  // the timer tries again
  const bool was_starved = last->place == Place::kStarved;
  Detach(last);
  Rewind(last);
  if (was_starved) {
    Endings none;  // it is not alone
    Starve(last, now, &none);
  } else {
    Attach(last, now);
  }
  Revive(1, now);
}

int64_t SchedulerImpl::UsefulSteps(const Device& device) const {
  const int64_t rows = device.running_rows + device.decode_rows + device.fed.total().tokens +
                       (starved_.empty() ? fresh_.total().tokens : 0);
  return std::clamp<int64_t>(DivideUp(rows, options_.rows_per_step), 1,
                             std::max(1, device.workers));
}

bool SchedulerImpl::MayBeginHere(const Device& device) const {
  if (fresh_.empty()) return false;
  if (!starved_.empty()) {
    // What is tried again goes on; everything else waits behind the starved.
    return ScheduledSequence::OfOrder(fresh_.First())->trying;
  }
  // Sequences stay where they begin, so the devices get equally many.
  constexpr int64_t kSlack = 8;
  for (const Device& other : devices_) {
    if (!other.lost && device.bound > other.bound + kSlack) return false;
  }
  if (device.begun_branches == 0) return true;
  const ScheduledSequence& first = *ScheduledSequence::OfOrder(fresh_.First());
  // What is urgent does not wait for others to end.
  const bool urgent = first.priority == Priority::kHigh;
  const int64_t begun = urgent ? device.begun_branches / 2 : device.begun_branches;
  return first.branches <= options_.max_begun_branches - begun;
}

bool SchedulerImpl::MayStart(const Device& device) const {
  if (device.lost || device.running_steps >= UsefulSteps(device)) return false;
  return device.decode_sequences > 0 || !device.fed.empty() || MayBeginHere(device);
}

void SchedulerImpl::Take(ScheduledSequence* s, StepImpl* step, int64_t rows) {
  Detach(s);
  s->place = Place::kRunning;
  s->granted = static_cast<int>(rows);
  if (s->device == kAnyDevice) {
    s->device = step->device_;
    ++devices_[s->device].bound;
    devices_[s->device].begun_branches += s->branches;
  }
  if (!s->begun) {
    s->begun = true;
    ++begun_;
    begun_later_ += s->later;
  }
  step->Add(s, s->granted);
}

void SchedulerImpl::AddDecoding(Device& device, StepImpl* step, int64_t most_rows,
                                int64_t most_sequences) {
  while (device.decode_sequences > 0) {
    ScheduledSequence* best = nullptr;
    for (const DecodeList& list : device.decoding) {
      ScheduledSequence* const front = list.front();
      if (front != nullptr && (best == nullptr || front->decode_key < best->decode_key)) {
        best = front;
      }
    }
    // A sequence of more branches than a step has room for gets one to itself; the runner divides it.
    const bool fits = best->need.rows <= most_rows && best->need.branches <= most_sequences;
    if (!fits && !step->shares_.empty()) return;
    most_rows -= best->need.rows;
    most_sequences -= best->need.branches;
    Take(best, step, best->need.rows);
    if (most_rows <= 0 || most_sequences <= 0) return;
  }
}

ScheduledSequence* SchedulerImpl::NextFed(const Device& device) const {
  OrderNode* node = device.fed.First();
  if (MayBeginHere(device)) {
    OrderNode* const fresh = fresh_.First();
    if (node == nullptr || fresh->key < node->key) node = fresh;
  }
  return node == nullptr ? nullptr : ScheduledSequence::OfOrder(node);
}

void SchedulerImpl::AddFed(Device& device, StepImpl* step, int64_t most_rows, int64_t room,
                           int64_t most_sequences) {
  bool first = true;
  while (most_rows > 0 && most_sequences > 0) {
    ScheduledSequence* const s = NextFed(device);
    if (s == nullptr) return;
    int64_t rows = std::min(s->need.rows, most_rows);
    if (s->need.whole && rows < s->need.rows) {
      if (!first || s->need.rows > room) return;
      rows = s->need.rows;
    }
    first = false;
    most_rows -= rows;
    most_sequences -= std::min<int64_t>(s->need.branches, rows);
    Take(s, step, rows);
  }
}

std::unique_ptr<StepImpl> SchedulerImpl::Build(int device_index, absl::Time now) {
  if (retry_at_ <= now) {
    retry_at_ = now + kAllocationRetry;
    Revive(1, now);
  }
  Device& device = devices_[device_index];
  if (!MayStart(device)) return nullptr;
  auto step = std::make_unique<StepImpl>();
  const int64_t most_sequences = options_.max_step_sequences;
  // Under the lock it is quicker to allocate once.
  const auto most = static_cast<size_t>(std::min(most_sequences, live_));
  step->shares_.reserve(most);
  step->sequences_.reserve(most);
  step->device_ = device_index;
  step->start_ = now;

  // Other workers that this one leaves something to.
  const int64_t free = UsefulSteps(device) - device.running_steps;
  const int64_t budget = options_.max_step_tokens;
  const ScheduledSequence* const next = NextFed(device);
  const bool feed = next != nullptr;
  // Room that is left for what is fed. With room for one row only, or for little else, the two take turns.
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
    const int64_t most_rows = turns ? budget : budget - left_rows;
    AddDecoding(device, step.get(), std::min(share, most_rows),
                turns ? most_sequences : most_sequences - left_sequences);
    decode_rows = step->rows_;
  }
  // A worker that is free feeds the rest, and this one goes on with the next tokens.
  const bool leave = decode_rows > 0 && free > 1;
  if (feed && !leave && !(turns && decode_rows > 0)) {
    int64_t taken = 0;
    for (const StepShare& share : step->shares_) {
      taken += share.rows;
    }
    AddFed(device, step.get(), std::min(Portion(decode_rows), budget - taken), budget - taken,
           most_sequences - static_cast<int64_t>(step->shares_.size()));
  }

  ++device.running_steps;
  ++running_steps_;
  device.running_rows += step->rows_;
  running_fed_rows_ += step->fed_rows_;
  running_decode_rows_ += step->rows_ - step->fed_rows_;
  return step;
}

void SchedulerImpl::Wake(int with_worker) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    if (device.waiting_workers <= device.woken_workers || !MayStart(device)) continue;
    const int64_t steps = UsefulSteps(device) - device.running_steps;
    if (steps <= device.woken_workers + (static_cast<int>(i) == with_worker ? 1 : 0)) continue;
    ++device.woken_workers;
    device.work.Signal();
  }
}

std::unique_ptr<Step> SchedulerImpl::TryTakeStep(int device) {
  Endings endings;
  std::unique_ptr<Step> step;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    EndExpired(now, &endings);
    step = Build(device, now);
    if (step != nullptr) Wake();
  }
  Tell(std::move(endings));
  return step;
}

std::unique_ptr<Step> SchedulerImpl::TakeStep(int device_index) {
  while (true) {
    Endings endings;
    std::unique_ptr<Step> step;
    bool end = false;
    {
      MutexLock lock(&mutex_);
      Device& device = devices_[device_index];
      absl::Time now = clock_->Now();
      EndExpired(now, &endings);
      step = Build(device_index, now);
      while (step == nullptr && endings.empty() && !device.lost && !Idle()) {
        const OrderNode* const node = expiry_.First();
        absl::Time until =
            std::min(retry_at_, node == nullptr ? absl::InfiniteFuture() : node->key.deadline);
        // What is running is looked at when its step ends.
        if (until <= now) until = now + kAllocationRetry;
        ++device.waiting_workers;
        device.work.WaitFor(&mutex_, until - now);
        --device.waiting_workers;
        if (device.woken_workers > 0) --device.woken_workers;
        now = clock_->Now();
        EndExpired(now, &endings);
        step = Build(device_index, now);
      }
      end = step == nullptr && (device.lost || Idle());
      if (Idle()) WakeAll();
      if (step != nullptr || end) Wake();
    }
    Tell(std::move(endings));
    if (step != nullptr || end) return step;
  }
}

void SchedulerImpl::RecordResult(ScheduledSequence* s, absl::Time now) {
  if (s->recorded || !s->need.has_result) return;
  s->recorded = true;
  s->times.queue = now - s->arrival;
  admission_.AddOutcome(s->predicted_seconds, s->arrival, s->deadline, now);
}

void SchedulerImpl::Settle(ScheduledSequence* s, const absl::Status& status, int device,
                           absl::Time now, Endings* endings) {
  s->place = Place::kNowhere;
  CountHeld(s);
  s->need = s->sequence->need();
  const bool lost = devices_[device].lost;
  if (status.ok() && s->need.done) {
    End(s, s->need.cut_off ? suspended_ : absl::OkStatus(), now, endings);
  } else if (!s->end_status.ok()) {
    End(s, absl::Status(s->end_status), now, endings);
  } else if (s->deadline <= now) {
    ++counts_.expired;
    End(s, ExpiredStatus(*s, now), now, endings);
  } else if (!admission_.stopped().ok()) {
    End(s, admission_.stopped(), now, endings);
  } else if (lost || absl::IsUnavailable(status)) {
    if (!status.ok() && ++s->lost_runs >= kMaxRuns) return End(s, status, now, endings);
    Rewind(s);
    if (!suspended_.ok()) return End(s, suspended_, now, endings);
    Attach(s, now);
  } else if (absl::IsResourceExhausted(status)) {
    if (!suspended_.ok()) return End(s, suspended_, now, endings);
    Starve(s, now, endings);
  } else if (!status.ok()) {
    End(s, status, now, endings);
  } else {
    s->starved_since = absl::InfiniteFuture();
    if (!suspended_.ok() && !s->suspended) {
      s->suspended = true;
      s->sequence->Suspend();
      s->need = s->sequence->need();
      if (s->need.done)
        return End(s, s->need.cut_off ? suspended_ : absl::OkStatus(), now, endings);
    }
    Attach(s, now);
  }
}

void SchedulerImpl::FinishStep(std::unique_ptr<Step> finished, const absl::Status& status,
                               absl::Duration compute) {
  std::unique_ptr<StepImpl> step(static_cast<StepImpl*>(finished.release()));
  Endings endings;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    Device& device = devices_[step->device_];
    --device.running_steps;
    --running_steps_;
    device.running_rows -= step->rows_;
    running_fed_rows_ -= step->fed_rows_;
    running_decode_rows_ -= step->rows_ - step->fed_rows_;
    int64_t tried = 0;
    bool tried_in_vain = false;
    for (size_t i = 0; i < step->shares_.size(); ++i) {
      ScheduledSequence* const s = step->sequences_[i].get();
      const absl::Status& outcome = status.ok() ? step->shares_[i].status : status;
      s->times.compute += compute;
      if (s->trying) {
        s->trying = false;
        ++tried;
        if (absl::IsResourceExhausted(outcome)) tried_in_vain = true;
      }
      if (outcome.ok()) {
        // It is not done before it says so.
        if (s->need.decoding && s->later > 0) {
          CountLater(s, std::max<int64_t>(s->later - s->granted, 1));
        }
        s->need = s->sequence->need();
        RecordResult(s, now);
      }
      Settle(s, outcome, step->device_, now, &endings);
    }
    admission_.LearnOutcomes();
    if (tried_in_vain) {
      tries_ = 1;
    } else if (tried > 0) {
      // Each success lets twice as many try, so that a short want of memory is soon forgotten.
      tries_ = std::min<int64_t>(2 * tries_, options_.max_step_sequences);
      Revive(tries_, now);
    }
    BreakDeadlock(tried_in_vain, now);
    int rows = step->rows_;
    for (const StepShare& share : step->shares_) rows -= share.unused;
    if (status.ok() && rows > 0) {
      const absl::Duration busy = std::max(compute, now - step->start_);
      (step->fed_rows_ > 0 ? admission_.speed() : decode_speed_)
          .AddBatch(rows, absl::ToDoubleSeconds(busy));
    }
    // This worker comes back soon, for one step.
    Wake(step->shares_.size() >= kManyDeliveries ? kAnyDevice : step->device_);
    if (Idle()) WakeAll();
  }
  {
    const DeferredWork deferred;
    std::optional<AnswerGroup> group;
    if (step->shares_.size() > 1 && !DeferredWork::has_keeper()) group.emplace();
    for (const StepShare& share : step->shares_) share.sequence->Deliver();
    step = nullptr;  // the sequences may be freed, and their calls, before the last one is told
    Tell(std::move(endings));
  }
}

void SchedulerImpl::LoseDevice(int device_index, const absl::Status& status) {
  Endings endings;
  {
    MutexLock lock(&mutex_);
    Device& lost = devices_[device_index];
    if (lost.lost) return;
    lost.lost = true;
    num_workers_ -= lost.workers;
    const absl::Time now = clock_->Now();
    if (num_workers_ == 0) {
      admission_.Stop(absl::UnavailableError(absl::StrCat(
          "every device that served this model has failed, the last with: ", status.message())));
    }
    for (ScheduledSequence *s = oldest_, *next = nullptr; s != nullptr; s = next) {
      next = s->newer;
      if (s->place == Place::kRunning) continue;
      if (!admission_.stopped().ok()) {
        Detach(s);
        End(s, admission_.stopped(), now, &endings);
      } else if (s->device == device_index) {
        Detach(s);
        Rewind(s);
        if (suspended_.ok()) {
          Attach(s, now);
        } else {
          End(s, suspended_, now, &endings);
        }
      }
    }
    Wake();
    WakeAll();
  }
  Tell(std::move(endings));
}

void SchedulerImpl::Close() {
  MutexLock lock(&mutex_);
  admission_.Close();
  WakeAll();
}

void SchedulerImpl::Suspend(const absl::Status& status) {
  Endings endings;
  {
    MutexLock lock(&mutex_);
    admission_.Close();
    if (!suspended_.ok()) return;
    suspended_ = status;
    const absl::Time now = clock_->Now();
    for (ScheduledSequence *s = oldest_, *next = nullptr; s != nullptr; s = next) {
      next = s->newer;
      if (s->place == Place::kRunning) continue;
      Detach(s);
      s->suspended = true;
      s->sequence->Suspend();
      if (const StepNeed need = s->sequence->need(); need.done) {
        End(s, need.cut_off ? status : absl::OkStatus(), now, &endings);
      } else {
        Attach(s, now);
      }
    }
    WakeAll();
  }
  Tell(std::move(endings));
}

SchedulerStats SchedulerImpl::stats() const {
  MutexLock lock(&mutex_);
  SchedulerStats stats = counts_;
  stats.rejected = admission_.rejected();
  stats.paused = paused_;
  stats.running = begun_ - paused_begun_;
  stats.waiting = live_ - begun_ - (paused_ - paused_begun_);
  stats.waiting_rows = waiting_rows_;
  stats.running_steps = running_steps_;
  return stats;
}

absl::Status CheckOptions(const SchedulerOptions& options) {
  absl::Status status = CheckLeast({{"max_step_tokens", options.max_step_tokens, 1},
                                    {"max_step_sequences", options.max_step_sequences, 1},
                                    {"rows_per_step", options.rows_per_step, 1},
                                    {"max_streams", options.max_streams, 1},
                                    {"max_waiting_rows", options.max_waiting_rows, 1},
                                    {"max_waiting_sequences", options.max_waiting_sequences, 1},
                                    {"max_begun_branches", options.max_begun_branches, 1}});
  status.Update(CheckAgeing(options.ageing_interval));
  const int64_t workers =
      std::accumulate(options.workers.begin(), options.workers.end(), int64_t{0});
  if (workers < 1)
    status.Update(OptionError("workers", "at least 1 in all", absl::StrCat(workers)));
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceScheduler>> SequenceScheduler::Create(
    const SchedulerOptions& options, const Clock* clock) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  return std::make_unique<SchedulerImpl>(options, clock);
}

}  // namespace sru::server::batching
