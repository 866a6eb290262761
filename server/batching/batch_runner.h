// BatchRunner: the forward pass as a worker sees it. The engine has one per worker and calls it
// from one thread at a time: that of its worker, or of a worker whose own device has failed and
// that runs its batch again here. Tests replace it with a puppet.
#ifndef SRU_SERVER_BATCHING_BATCH_RUNNER_H_
#define SRU_SERVER_BATCHING_BATCH_RUNNER_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/batching/queue/batcher.h"

namespace sru::server::batching {

class BatchRunner {
 public:
  virtual ~BatchRunner() = default;

  // Which of the backend's devices it runs on. Constant.
  virtual int device() const { return 0; }

  // Called once, before the first Run(): touches memory and fills caches.
  virtual absl::Status WarmUp() = 0;

  // Computes the outputs of every sequence. kInvalidArgument: some sequence is at fault, and each
  // may be run again alone. kUnavailable: the device has failed for good, and no runner on it can
  // be used any more; the batch may be run again on another device. Any other error concerns the
  // whole batch.
  virtual absl::Status Run(const std::vector<const SequenceTask*>& sequences) = 0;
};

// Is told of what ran, from the workers' threads.
class ComputeObserver {
 public:
  virtual ~ComputeObserver() = default;

  virtual void OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
                       const absl::Status& status) = 0;
  // A step that ran, or failed.
  virtual void OnStep(int /*sequences*/, absl::Duration /*compute*/) {}
  // Unless calls are answered as a whole: the first tokens of a sequence, `duration` since
  // Submit().
  virtual void OnFirstToken(absl::Duration /*duration*/) {}
  // Later ones, `duration` since the step that gave those before.
  virtual void OnNextToken(absl::Duration /*duration*/) {}
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_BATCH_RUNNER_H_
