// SequenceScheduler: decides which sequences of one model take part in the next step.
//
// A sequence (step_runner.h) is fed first, such as a prompt, and then goes on by one row per branch
// and step until it ends. A worker takes a step, runs it and hands it back; a sequence is in one
// step at a time, and may join or leave at any of them.
//
// A step takes first the sequences that decode, those that have been ready longest first, and then
// portions of what is fed, in the batcher's order: priority level with ageing, then deadline, then
// arrival. A level of priority counts as one ageing_interval of waiting in both. A step holds at
// most max_step_tokens rows. Beside sequences that decode, what is fed is bounded so that the step
// takes at most kSlowestStep times as long as without it by the measured speed, or kLeastPortion
// rows; some room is always left for it. Alone, it takes the whole step. What can only be fed whole
// (StepNeed::whole) is not bounded in this way if it is the first of a step to be fed: room is left
// for all of it, or, if that is more than half of a step, it takes turns with what decodes.
//
// Callers share the steps by weight (fair_order.h), in rows; the above is the order of one caller's
// sequences. While several callers compete, the sequences of a step that decode take about
// kStepPiece, or more where each step takes much of that by itself.
//
// With several workers a second step starts only beside one of rows_per_step rows, or for what is
// fed: what fits into one step takes little longer together than alone. A sequence stays on the
// device on which it began.
//
// Admission is the batcher's (batcher.h), by the time of the first result. Where results
// come at the end only (SchedulerOptions::result_at_end), it is by the time of the end. Sequences
// may be submitted together, and are admitted or refused together then.
//
// Where sequences are short (SchedulerOptions::max_begun_branches), no more begin than decode in a
// step together: those that have begun end sooner and hold less memory, and those that wait hold
// none. One of high priority, or of a caller of whom nothing has begun, begins until there are
// twice as many.
//
// A sequence ends when it says so, at its deadline, when it is cancelled, or with an error of its
// own. What is in a step at that moment ends with the step. A paused one takes no step and keeps
// its memory; its deadline still runs.
//
// Memory: starvation.h.
//
// A device that is lost: its sequences are computed again on another one; only once after a step of
// their own failed, so that an input that breaks devices does not break all of them.
//
// Thread-safe. Time comes from the injected clock. Submit(), Cancel() and a portion take O(log n)
// operations, a row of a sequence that decodes O(1). Sequences that are paused or wait cost a step
// nothing.
//
// Before it is destroyed, every step must have come back and every sequence have ended.
#ifndef SRU_SERVER_BATCHING_STEPS_SEQUENCE_SCHEDULER_H_
#define SRU_SERVER_BATCHING_STEPS_SEQUENCE_SCHEDULER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/base/clock.h"
#include "server/batching/queue/admission.h"
#include "server/batching/queue/flow.h"
#include "server/batching/steps/places.h"
#include "server/batching/steps/scheduled_sequence.h"
#include "server/batching/steps/starvation.h"
#include "server/batching/steps/step_composer.h"
#include "server/batching/steps/step_service.h"

namespace sru::server::batching {

class SequenceScheduler {
 public:
  // kInvalidArgument names the option that is out of range. `clock` must outlive the scheduler.
  static absl::StatusOr<std::unique_ptr<SequenceScheduler>> Create(const SchedulerOptions& options,
                                                                   const Clock* clock);
  ~SequenceScheduler();

  bool result_at_end() const { return options_.result_at_end; }

  // `on_work` is called, without a lock, when a step may start, or earlier than Next() has said,
  // and when nothing is left after Close(). Call it before the first Submit().
  void OnWork(std::function<void()> on_work) { on_work_ = std::move(on_work); }

  // The next five are those of StepService. The requests are consumed if and only if the status is
  // OK; then End() of each sequence is called from FinishStep(), TryTakeStep(), Cancel(), Suspend()
  // or LoseDevice().
  absl::StatusOr<std::vector<SequenceHandle>> Submit(std::vector<SequenceRequest>&& requests);
  absl::Status CheckAdmission(int64_t rows, int64_t sequences, Priority priority,
                              absl::Time deadline, const Flow* flow = nullptr);
  void Cancel(const SequenceHandle& handle) noexcept;
  void Pause(const SequenceHandle& handle) { SetPaused(handle, true); }
  void Resume(const SequenceHandle& handle) { SetPaused(handle, false); }

  // When TryTakeStep() has something to do next, and whose rows the step would begin with.
  NextWork Next(int device, absl::Time now);
  // Close() was called, every sequence has ended and no step runs.
  bool IsDone() const;
  // The next step of that device if one may start now, else null. First ends what has expired.
  // Never blocks.
  std::unique_ptr<Step> TryTakeStep(int device = 0);
  // Hands a step back; `status` is what StepRunner::Run() returned. Then, without the lock and
  // after the next step may have been taken, delivers what the step resulted in.
  void FinishStep(std::unique_ptr<Step> step, const absl::Status& status, absl::Duration compute);

  // The device has failed. Steps of it that run must end with kUnavailable.
  // Without a device left, every sequence ends and Submit() refuses (kNoWorker), with kUnavailable
  // and `status`'s message.
  void LoseDevice(int device, const absl::Status& status);

  // From now on Submit() gives kUnavailable (kDraining).
  void Close();
  // Tells every sequence to stop (StepSequence::Suspend()) and runs what it needs for that, paused
  // ones too. `status`, which must not be OK, is what they end with. Implies Close().
  void Suspend(const absl::Status& status);

  StepStats stats() const;

 private:
  // Sequences that have ended, before they are told, which needs no lock.
  using Endings = std::vector<SequenceHandle>;
  SequenceScheduler(const SchedulerOptions& options, const Clock* clock);

  void SetPaused(const SequenceHandle& handle, bool paused);
  // Counts a call that ends so before its time; once, by the first of its sequences.
  void CountEnd(ScheduledSequence* s, int64_t* calls) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // It is in no step and has been detached, or is in the one that is handed back.
  void End(ScheduledSequence* s, const absl::Status& status, absl::Time now, Endings* endings)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndExpired(absl::Time now, Endings* endings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ExpiredStatus(const ScheduledSequence& s, absl::Time now) const;
  // What becomes of a sequence whose share of a step has ended with `status`.
  void Settle(ScheduledSequence* s, const absl::Status& status, int device, absl::Time now,
              Endings* endings) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Idle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return admission_.closed() && places_.levels().live == 0;
  }
  // Whether workers have something to look for: a step that may start, where one of `but_one` is
  // left to a worker that looks by itself, or the end of all.
  bool HasNews(int but_one = kAnyDevice) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const SchedulerOptions options_;
  const AdmissionOptions admission_options_;
  const Clock* const clock_;
  std::function<void()> on_work_ = [] {};

  mutable Mutex mutex_;
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  Places places_ ABSL_GUARDED_BY(mutex_);
  Starvation starvation_ ABSL_GUARDED_BY(mutex_);
  StepComposer composer_ ABSL_GUARDED_BY(mutex_);
  absl::Status suspended_ ABSL_GUARDED_BY(mutex_);  // not OK after Suspend()
  int64_t expired_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t cancelled_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_SEQUENCE_SCHEDULER_H_
