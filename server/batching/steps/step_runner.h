// StepSequence and StepRunner: computations that take many steps, as their scheduler sees them, and
// what runs one step of many of them. Neither says what is computed: a text, a translation.
#ifndef SRU_SERVER_BATCHING_STEPS_STEP_RUNNER_H_
#define SRU_SERVER_BATCHING_STEPS_STEP_RUNNER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/batching/queue/batcher.h"

namespace sru::server::batching {

// What a sequence can be given in its next step.
struct StepNeed {
  bool done = false;     // nothing more: it has ended
  bool cut_off = false;  // `done`, but only because of Suspend()
  // Its first result is there: what a caller waits for in the beginning.
  bool has_result = false;
  // It goes on by one row per branch, all of them in one step. Else it is being fed, such as a
  // prompt, in portions of any size, or with `whole` in one of all rows.
  bool decoding = false;
  bool whole = false;
  int64_t rows = 0;  // that it can be fed; at least 1 unless `done`
  int branches = 1;  // sequences of the runner's batch that it needs
};

// Of a step that has run with a sequence; `number` tells steps apart.
struct StepTimes {
  int64_t number = 0;
  absl::Time arrival;  // of the sequence
  absl::Time start;
  absl::Time end;
  int sequences = 0;  // of the step
  int rows = 0;
};

// What a step has come to for a sequence, for metrics and predictions.
struct StepProgress {
  int new_tokens = 0;
  // Of a sequence that is done now and had to be decoded: in how many steps, for how many rows that
  // it was fed first.
  int steps = 0;
  int fed_rows = 0;
};

// Not thread-safe, except for Deliver() and End(): its scheduler or the runner of the step that it
// is in calls it. What the scheduler calls under its lock is quick and calls nobody back.
class StepSequence {
 public:
  virtual ~StepSequence() = default;

  // Under the lock, while it is in no step.
  virtual StepNeed need() const = 0;
  // Whether it holds memory of its device.
  virtual bool holds_state() const = 0;
  // Gives up what it holds on its device; it is computed again from its start, on any device, with
  // the same results, of which none is given twice.
  virtual void Rewind() = 0;
  // It is to stop as soon as another process can go on from what it has: need() is what this takes.
  virtual void Suspend() = 0;

  // Without a lock, on the thread of a step that it was in, before anything else is called.
  virtual StepProgress OnStep(const StepTimes& /*step*/) { return StepProgress(); }

  // Without a lock: passes on what its steps have resulted in. Another step of it may be running.
  // May be called by several threads at once.
  virtual void Deliver() = 0;
  // The same once and for all: it has ended with `status`. After it, nothing but Deliver() is
  // called, which does nothing.
  virtual void End(const absl::Status& status, const RequestTimes& times) = 0;
};

// A part of a step.
struct StepShare {
  StepSequence* sequence = nullptr;
  int rows = 0;  // at most; all of need().rows of a sequence that is decoding
  // Of these rows, those that it turned out not to need.
  int unused = 0;
  // What it came to. kResourceExhausted: there was no memory; nothing has changed, and the share
  // may be run again. Any other error ends the sequence.
  absl::Status status;
};

// Used by one thread at a time.
class StepRunner {
 public:
  virtual ~StepRunner() = default;

  // Which of the backend's devices it runs on. Constant.
  virtual int device() const { return 0; }

  // Called once, before the first Run(): touches memory and fills caches.
  virtual absl::Status WarmUp() = 0;

  // Runs the shares, whose sequences differ, and sets the status of each. kUnavailable: the device
  // has failed for good. Any error means for all shares what StepShare::status says.
  virtual absl::Status Run(std::vector<StepShare>& shares) = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_STEP_RUNNER_H_
