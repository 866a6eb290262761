#include "server/batching/steps/sequence_scheduler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/base/late_wakes.h"
#include "server/base/retry.h"

namespace sru::server::batching {
namespace {

// A sequence may be in this many steps that lose their device.
constexpr int kMaxRuns = 2;
// So many sinks are worth the waking of another worker, which starts the next step meanwhile.
constexpr size_t kManyDeliveries = 8;

// Without a lock. Nothing of the scheduler is used: the last one may be its end.
void Tell(std::vector<SequenceHandle> endings) {
  for (SequenceHandle& ending : endings) {
    const SequenceHandle ended = std::move(ending);  // freed once it is told
    ended->sequence->End(ended->end_status, ended->times);
  }
}

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

absl::Status CheckOptions(const SchedulerOptions& options) {
  absl::Status status = CheckLeast({{"max_step_tokens", options.max_step_tokens, 1},
                                    {"max_step_sequences", options.max_step_sequences, 1},
                                    {"rows_per_step", options.rows_per_step, 1},
                                    {"max_streams", options.max_streams, 1},
                                    {"max_waiting_rows", options.max_waiting_rows, 1},
                                    {"max_waiting_sequences", options.max_waiting_sequences, 1},
                                    {"max_begun_branches", options.max_begun_branches, 1}},
                                   options.ageing_interval);
  const int64_t workers =
      std::accumulate(options.workers.begin(), options.workers.end(), int64_t{0});
  if (workers < 1) {
    status.Update(InvalidArgument("workers: expected at least 1 in all, found ", workers));
  }
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceScheduler>> SequenceScheduler::Create(
    const SchedulerOptions& options, const Clock* clock) {
  SRU_RETURN_UNLESS_OK(CheckOptions(options));
  return std::unique_ptr<SequenceScheduler>(new SequenceScheduler(options, clock));
}

SequenceScheduler::SequenceScheduler(const SchedulerOptions& options, const Clock* clock)
    : options_(options),
      admission_options_(AdmissionOptionsOf(options)),
      clock_(clock),
      admission_(admission_options_, clock->Now()),
      places_(options.workers, options.ageing_interval, &admission_),
      starvation_(&places_),
      composer_(options_, &places_, &admission_) {}

SequenceScheduler::~SequenceScheduler() {
  MutexLock lock(&mutex_);
  const Places::Levels& left = places_.levels();
  if (left.live == 0 && left.running_steps == 0) return;
  std::fprintf(stderr,
               "SequenceScheduler destroyed while %lld sequences and %lld steps are there; "
               "Suspend() them and run the rest first\n",
               static_cast<long long>(left.live), static_cast<long long>(left.running_steps));
  std::abort();
}

absl::StatusOr<std::vector<SequenceHandle>> SequenceScheduler::Submit(
    std::vector<SequenceRequest>&& requests) {
  const size_t count = requests.size();
  std::vector<SequenceHandle> handles(count);
  AdmissionRequest together;
  together.priority = requests[0].priority;
  together.deadline = requests[0].deadline;
  together.flow = requests[0].flow.get();
  const auto call_failed = count > 1 ? std::make_shared<bool>(false) : nullptr;
  for (size_t i = 0; i < count; ++i) {
    handles[i] = std::make_shared<ScheduledSequence>();
    ScheduledSequence* const s = handles[i].get();
    const StepNeed need = requests[i].sequence->need();
    if (need.whole && need.rows > options_.max_step_tokens) {
      return InvalidArgument(options_.words.fed, ": expected at most ", options_.max_step_tokens,
                             " tokens each (max_batch_tokens), found ", need.rows);
    }
    s->branches = requests[i].branches;
    s->call_failed = call_failed;
    if (options_.result_at_end) {
      s->later = s->all_later = int64_t{requests[i].branches} * requests[i].least_steps;
    }
    together.size += {need.rows, 1};
    together.least_steps = std::max(together.least_steps, requests[i].least_steps);
    together.later_rows += s->all_later;
  }
  SRU_RETURN_UNLESS_OK(Admission::CheckSize(admission_options_, together.size));
  Verdict verdict;
  bool news = false;
  {
    MutexLock lock(&mutex_);
    verdict = admission_.Judge(together, clock_->Now(), composer_);
    FlowPlaces* const flow = verdict.accepted() ? places_.PlacesOf(requests[0].flow) : nullptr;
    for (size_t i = 0; i < count && verdict.accepted(); ++i) {
      ScheduledSequence* const s = handles[i].get();
      s->sequence = std::move(requests[i].sequence);
      s->priority = requests[0].priority;
      s->deadline = requests[0].deadline;
      s->arrival = verdict.now;
      s->number = admission_.TakeNumber();
      s->predicted_seconds = verdict.predicted_seconds;
      s->self = handles[i];
      places_.Join(s, flow, verdict.now);
    }
    if (verdict.accepted()) {
      // Whoever sleeps until the first deadline may have to wake up earlier: what has expired may
      // keep others from beginning.
      const OrderNode* const first = places_.expiry().First();
      news = HasNews() || (first != nullptr && first->key.deadline == together.deadline);
    }
  }
  if (news) on_work_();
  SRU_RETURN_UNLESS_OK(verdict.ToStatus());
  return handles;
}

absl::Status SequenceScheduler::CheckAdmission(int64_t rows, int64_t sequences, Priority priority,
                                               absl::Time deadline, const Flow* flow) {
  Verdict verdict;
  {
    MutexLock lock(&mutex_);
    verdict =
        admission_.Judge({{rows, sequences}, priority, deadline, flow}, clock_->Now(), composer_);
  }
  return verdict.ToStatus();
}

void SequenceScheduler::CountEnd(ScheduledSequence* s, int64_t* calls) {
  if (s->call_failed == nullptr || !std::exchange(*s->call_failed, true)) ++*calls;
}

void SequenceScheduler::End(ScheduledSequence* s, const absl::Status& status, absl::Time now,
                            Endings* endings) {
  if (!s->recorded) s->times.queue = now - s->arrival;
  if (s->call_failed != nullptr && !status.ok()) *s->call_failed = true;
  const bool freed = s->holds;
  places_.Leave(s);
  s->end_status = status;
  endings->push_back(std::move(s->self));
  if (freed) starvation_.Revive(1, now);
}

absl::Status SequenceScheduler::ExpiredStatus(const ScheduledSequence& s, absl::Time now) const {
  return absl::DeadlineExceededError(
      absl::StrCat("the deadline passed after ", absl::FormatDuration(now - s.arrival), ", ",
                   s.recorded ? options_.words.after_result : options_.words.before_result));
}

void SequenceScheduler::EndExpired(absl::Time now, Endings* endings) {
  OrderNode* node = places_.expiry().First();
  while (node != nullptr && node->key.deadline <= now) {
    ScheduledSequence* const s = ScheduledSequence::OfExpiry(node);
    const OrderKey key = node->key;
    if (s->place != Place::kRunning) {
      CountEnd(s, &expired_);
      End(s, ExpiredStatus(*s, now), now, endings);
    }
    node = places_.expiry().After(key);
  }
}

void SequenceScheduler::Cancel(const SequenceHandle& handle) noexcept {
  if (handle == nullptr) return;
  Endings endings;
  bool news = false;
  {
    MutexLock lock(&mutex_);
    ScheduledSequence* const s = handle.get();
    if (s->place == Place::kNowhere) return;
    const absl::Time now = clock_->Now();
    const bool expired = s->deadline <= now;
    absl::Status status =
        expired ? ExpiredStatus(*s, now) : absl::CancelledError("the caller cancelled the request");
    if (s->place == Place::kRunning && !s->end_status.ok()) return;
    CountEnd(s, expired ? &expired_ : &cancelled_);
    if (s->place == Place::kRunning) {
      s->end_status = std::move(status);
    } else {
      End(s, status, now, &endings);
    }
    news = HasNews();
  }
  if (news) on_work_();
  Tell(std::move(endings));  // the last one may be the end of the scheduler
}

void SequenceScheduler::SetPaused(const SequenceHandle& handle, bool paused) {
  bool news = false;
  {
    MutexLock lock(&mutex_);
    ScheduledSequence* const s = handle.get();
    if (s == nullptr || s->paused == paused) return;
    s->paused = paused;
    const bool waits = !s->suspended && s->place != Place::kNowhere && s->place != Place::kRunning;
    if (paused ? !waits : s->place != Place::kPaused) return;
    places_.Attach(s, clock_->Now());
    news = HasNews();  // others may have waited behind it
  }
  if (news) on_work_();
}

bool SequenceScheduler::HasNews(int but_one) const {
  if (Idle()) return true;
  for (int i = 0; i < static_cast<int>(places_.devices().size()); ++i) {
    if (composer_.StepsToStart(i) > (i == but_one ? 1 : 0)) return true;
  }
  return false;
}

NextWork SequenceScheduler::Next(int device, absl::Time now) {
  MutexLock lock(&mutex_);
  NextWork next;
  if (places_.devices()[device].lost) return next;
  if (composer_.StepsToStart(device) > 0) {
    next.at = absl::InfinitePast();
    next.flow = composer_.FirstFlow(device, now);
    return next;
  }
  next.at = starvation_.retry_at();
  OrderNode* node = places_.expiry().First();
  // What is running is looked at when its step ends.
  while (node != nullptr && node->key.deadline <= now &&
         ScheduledSequence::OfExpiry(node)->place == Place::kRunning) {
    node = places_.expiry().After(node->key);
  }
  if (node != nullptr) next.at = std::min(next.at, node->key.deadline);
  return next;
}

bool SequenceScheduler::IsDone() const {
  MutexLock lock(&mutex_);
  return Idle() && places_.levels().running_steps == 0;
}

std::unique_ptr<Step> SequenceScheduler::TryTakeStep(int device) {
  Endings endings;
  std::unique_ptr<Step> step;
  bool news = false;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    EndExpired(now, &endings);
    const absl::Time retry_at = starvation_.retry_at();
    starvation_.Retry(now);
    step = composer_.Compose(device, now);
    // An expired or retried sequence may have left work for another device.
    const bool changed = step != nullptr || !endings.empty() || retry_at != starvation_.retry_at();
    news = changed && HasNews();
  }
  if (news) on_work_();
  Tell(std::move(endings));
  return step;
}

void SequenceScheduler::Settle(ScheduledSequence* s, const absl::Status& status, int device,
                               absl::Time now, Endings* endings) {
  places_.Return(s);
  const bool lost = places_.devices()[device].lost;
  if (status.ok() && s->need.done) {
    End(s, s->need.cut_off ? suspended_ : absl::OkStatus(), now, endings);
  } else if (!s->end_status.ok()) {
    End(s, absl::Status(s->end_status), now, endings);
  } else if (s->deadline <= now) {
    CountEnd(s, &expired_);
    End(s, ExpiredStatus(*s, now), now, endings);
  } else if (!admission_.stopped().ok()) {
    End(s, admission_.stopped(), now, endings);
  } else if (lost || absl::IsUnavailable(status)) {
    if (!status.ok() && ++s->lost_runs >= kMaxRuns) return End(s, status, now, endings);
    places_.Rewind(s);
    if (!suspended_.ok()) return End(s, suspended_, now, endings);
    places_.Attach(s, now);
  } else if (absl::IsResourceExhausted(status)) {
    if (!suspended_.ok()) return End(s, suspended_, now, endings);
    if (starvation_.Starve(s, now)) return;
    End(s,
        RetryAfter(absl::ResourceExhaustedError(
                       "memory: there is none for the state of this request, although no other one "
                       "of this model holds any; retry later"),
                   kMemoryRetryAfter),
        now, endings);
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
    places_.Attach(s, now);
  }
}

void SequenceScheduler::FinishStep(std::unique_ptr<Step> step, const absl::Status& status,
                                   absl::Duration compute) {
  Endings endings;
  bool news = false;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = clock_->Now();
    places_.EndStep(*step);
    int64_t tried = 0;
    bool tried_in_vain = false;
    for (size_t i = 0; i < step->shares.size(); ++i) {
      ScheduledSequence* const s = step->sequences[i].get();
      const absl::Status& outcome = status.ok() ? step->shares[i].status : status;
      s->times.compute += compute;
      s->times.Met(static_cast<int>(step->shares.size()), step->rows);
      if (s->trying) {
        s->trying = false;
        ++tried;
        if (absl::IsResourceExhausted(outcome)) tried_in_vain = true;
      }
      if (outcome.ok()) {
        places_.Advance(s);
        if (!s->recorded && s->need.has_result) {
          s->recorded = true;
          s->times.queue = s->times.first_step = now - s->arrival;
          admission_.AddOutcome(s->predicted_seconds, s->arrival, s->deadline, now);
        }
      }
      Settle(s, outcome, step->device, now, &endings);
    }
    admission_.LearnOutcomes();
    starvation_.OnStepEnd(tried, tried_in_vain, options_.max_step_sequences, now);
    int rows = step->rows;
    for (const StepShare& share : step->shares) rows -= share.unused;
    if (status.ok() && rows > 0) {
      composer_.Learn(*step, rows, std::max(compute, now - step->start));
    }
    // This worker comes back soon, for one step.
    news = HasNews(step->shares.size() >= kManyDeliveries ? kAnyDevice : step->device);
  }
  if (news) on_work_();
  const LateWakes late;
  for (const StepShare& share : step->shares) share.sequence->Deliver();
  step = nullptr;  // the sequences may be freed, and their calls, before the last one is told
  Tell(std::move(endings));
}

void SequenceScheduler::LoseDevice(int device, const absl::Status& status) {
  Endings endings;
  {
    MutexLock lock(&mutex_);
    if (places_.devices()[device].lost) return;
    const absl::Time now = clock_->Now();
    if (places_.LoseDevice(device) == 0) {
      admission_.Stop(absl::UnavailableError(absl::StrCat(
          "every device that served this model has failed, the last with: ", status.message())));
    }
    for (ScheduledSequence *s = places_.oldest(), *next = nullptr; s != nullptr; s = next) {
      next = s->newer;
      if (s->place == Place::kRunning) continue;
      if (!admission_.stopped().ok()) {
        End(s, admission_.stopped(), now, &endings);
      } else if (s->device == device) {
        places_.Rewind(s);
        if (suspended_.ok()) {
          places_.Attach(s, now);
        } else {
          End(s, suspended_, now, &endings);
        }
      }
    }
  }
  on_work_();
  Tell(std::move(endings));
}

void SequenceScheduler::Close() {
  {
    MutexLock lock(&mutex_);
    admission_.Close();
  }
  on_work_();
}

void SequenceScheduler::Suspend(const absl::Status& status) {
  Endings endings;
  {
    MutexLock lock(&mutex_);
    admission_.Close();
    if (!suspended_.ok()) return;
    suspended_ = status;
    const absl::Time now = clock_->Now();
    for (ScheduledSequence *s = places_.oldest(), *next = nullptr; s != nullptr; s = next) {
      next = s->newer;
      if (s->place == Place::kRunning) continue;
      s->suspended = true;
      s->sequence->Suspend();
      if (const StepNeed need = s->sequence->need(); need.done) {
        End(s, need.cut_off ? status : absl::OkStatus(), now, &endings);
      } else {
        places_.Attach(s, now);
      }
    }
  }
  on_work_();
  Tell(std::move(endings));
}

StepStats SequenceScheduler::stats() const {
  MutexLock lock(&mutex_);
  const Places::Levels& levels = places_.levels();
  StepStats stats;
  stats.running = levels.begun - levels.paused_begun;
  stats.waiting = levels.live - levels.begun - (levels.paused - levels.paused_begun);
  stats.paused = levels.paused;
  stats.waiting_rows = levels.waiting_rows;
  stats.running_steps = levels.running_steps;
  stats.expired = expired_;
  stats.cancelled = cancelled_;
  stats.replayed = levels.replayed;
  stats.rejected = admission_.rejected();
  return stats;
}

}  // namespace sru::server::batching
