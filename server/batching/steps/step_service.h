// StepService: computes calls of one model in steps. A call submits its sequences (step_runner.h),
// which are admitted together or refused together, at once; a sequence passes on its results and
// its end itself.
//
// Errors of Submit() are those of admission.h, where max_streams is about sequences (kStreams), and
// with admission by deadline (kDeadline) the result of least_steps has to be there in time.
// Besides, kInvalidArgument: a sequence, or all of them together, are larger than could ever be
// taken.
//
// If the status is OK, each sequence gets End() exactly once:
//   OK                  it has ended by itself
//   kDeadlineExceeded   the deadline has passed, maybe between two steps
//   kCancelled          Cancel() was called
//   kUnavailable        the service drains, or every device has failed
//   kResourceExhausted  there is no memory for its state even alone
// or another error of the model's run.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_STEPS_STEP_SERVICE_H_
#define SRU_SERVER_BATCHING_STEPS_STEP_SERVICE_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/batching/queue/reject_reason.h"
#include "server/batching/steps/scheduled_sequence.h"
#include "server/batching/steps/step_runner.h"

namespace sru::server::batching {

struct SequenceRequest {
  std::unique_ptr<StepSequence> sequence;
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  FlowHandle flow;  // of the caller
  // The step with which it may end by itself at the earliest, or with
  // SchedulerOptions::result_at_end at the latest; for admission.
  int least_steps = 1;
  int branches = 1;  // that it will have, at most; for max_begun_branches and result_at_end
};

// How messages call things.
struct SchedulerWords {
  const char* fed = "prompt";  // the field that is fed
  const char* before_result = "before the first token";
  const char* after_result = "between two tokens";
};

// What the scheduler of steps (sequence_scheduler.h) and its parts are made with.
struct SchedulerOptions {
  int max_step_tokens = 4096;        // at least 1
  int max_step_sequences = 256;      // at least 1
  int rows_per_step = 64;            // at least 1
  int max_streams = 1024;            // sequences that are there at a time; at least 1
  int64_t max_waiting_rows = 65536;  // to be fed, of all sequences; at least 1
  // Sequences that have not begun; at least 1.
  int64_t max_waiting_sequences = std::numeric_limits<int64_t>::max();
  // SequenceRequest::branches of the sequences that have begun on a device; a single one may have
  // more. At least 1.
  int64_t max_begun_branches = std::numeric_limits<int64_t>::max();
  bool result_at_end = false;
  SchedulerWords words;
  bool admission_by_deadline = true;
  absl::Duration ageing_interval = absl::Milliseconds(500);
  std::vector<int> workers = {1};  // [device]; at least one in all
};

// Counts and levels, for metrics. Cheap enough to be read on every scrape.
struct StepStats {
  int64_t running = 0;  // sequences that have had a step, without the paused ones
  int64_t waiting = 0;  // sequences that have not
  int64_t paused = 0;
  int64_t waiting_rows = 0;  // to be fed
  int64_t running_steps = 0;
  // Since the start.
  int64_t steps = 0;
  int64_t fed_rows = 0;
  int64_t new_tokens = 0;
  int64_t expired = 0;    // calls whose deadline passed
  int64_t cancelled = 0;  // calls
  int64_t replayed = 0;   // how often a sequence had to be computed again
  RejectCounts rejected;  // calls
};

class StepService {
 public:
  virtual ~StepService() = default;

  // See above, for at least one sequence; all have the priority, the deadline and the flow of the
  // first. Refusals are as Batcher::Submit()'s. Sequences may end before this returns.
  virtual absl::StatusOr<std::vector<SequenceHandle>> Submit(
      std::vector<SequenceRequest>&& requests) = 0;

  // What Submit() would say now to so many sequences that are fed that many rows together, without
  // its exact rules. A refusal counts as one of Submit().
  virtual absl::Status CheckAdmission(int64_t rows, int64_t sequences, Priority priority,
                                      absl::Time deadline, const Flow* flow = nullptr) = 0;

  // The caller is gone. A sequence that is in no step ends before this returns, another one with
  // the step. May be called at any time, also after the end.
  virtual void Cancel(const SequenceHandle& handle) = 0;

  // The reader is slow: the sequence takes no more steps until Resume(), after the one that it may
  // be in. Its deadline still runs. They do not count: Resume() undoes any number of Pause(). May
  // be called at any time.
  virtual void Pause(const SequenceHandle& handle) = 0;
  virtual void Resume(const SequenceHandle& handle) = 0;

  virtual StepStats stats() const = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_STEP_SERVICE_H_
