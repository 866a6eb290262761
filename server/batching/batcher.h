// Batcher: the queue of one model, from which workers take batches.
//
// A request is split into its sequences. A batch holds sequences of any lengths and of many
// requests and is closed by a token budget; nothing is padded. The sequences of one request may be
// spread over several batches; `done` follows the last. When one of its batches fails, the request
// gets that status and its sequences that still wait leave the queue.
//
// A batch starts as soon as a worker asks for one and there is work, unless max_queue_delay lets it
// wait for more. It then starts when the oldest waiting request has waited that long, a full batch
// is waiting, a longer wait would make a request miss its deadline, or the batcher is closed.
//
// Order: priority level, then deadline, then arrival. A waiting request rises by one level at each
// tick of a clock that ticks every `ageing_interval`. There is no highest level: a request of the
// lowest one goes before any that came three ticks later, so that it moves even under a flood of
// the highest. (Since all rise at the same ticks, the order of two requests never changes.)
//
// A sequence that does not fit into the rest of the budget is skipped (at most kMaxLookPast per
// batch), but not for ever: once a request has been overtaken in `max_passes` batches, the next
// batch starts with it.
//
// Admission: a request is taken whole or refused whole, at once:
//   kInvalidArgument    it has no sequence, or one without tokens, or one with more tokens than
//                       max_batch_tokens, or alone more than the queue may hold
//   kUnavailable        Close() was called (kDraining), or Stop() (kNoWorker)
//   kDeadlineExceeded   the deadline has passed already
//   kResourceExhausted  the queue's bound on tokens or on sequences would be passed (kQueueFull),
//                       or, with admission by deadline, the request cannot finish in time by the
//                       measured speed of the model (kDeadline; speed_model.h): never while a
//                       worker is free and nothing waits, and never before a batch has been
//                       measured
// The reasons in parentheses are those of reject_reason.h. A request is consumed if and only if the
// status is OK; then its `done` is called exactly once.
//
// Submit() may throw std::bad_alloc, and then has not taken the request. Everywhere else that ends the
// process.
//
// A request that expires or is cancelled while it waits leaves the queue before compute and costs
// nothing. Sequences that are in a batch are always computed. Expired requests are removed whenever
// a worker looks for work. While all workers are busy, it is up to the callers to Cancel() them, as
// gRPC does when the deadline of a call passes.
//
// Thread-safe. Time comes from the injected clock. With n requests waiting, Submit() and Cancel()
// take O(log n) steps and a batch O(log n) for each of its requests.
//
// Before it is destroyed, every batch must have come back through Finish() and the queue must be
// empty (Close(), then serve the rest or Abort()). Otherwise the destructor ends the process, since
// a caller would wait for ever.
#ifndef SRU_SERVER_BATCHING_BATCHER_H_
#define SRU_SERVER_BATCHING_BATCHER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "server/base/clock.h"
#include "server/batching/answer_task.h"
#include "server/batching/order_tree.h"
#include "server/batching/reject_reason.h"
#include "server/batching/score_task.h"

namespace sru::server::batching {

// One sequence: its input and where its results go.
struct SequenceTask {
  std::vector<int32_t> token_ids;  // exactly one of these two is filled
  std::vector<float> features;     // [num_tokens][input_size]
  int num_tokens = 0;              // at least 1
  // [layers][output_size]: the state that the sequence goes on from; null = it begins here. For a
  // unidirectional classifier or encoder, and valid until `done` is called. The state after it goes to
  // output.final_state.
  const float* initial_state = nullptr;
  // Points into buffers of the caller that stay valid until `done` is called.
  kernels::SequenceOutput output;
  // For a language model, in place of `output`; stays valid until then, too.
  const ScoreTask* score = nullptr;
  // For a reader, in place of everything but num_tokens; stays valid until then, too.
  const AnswerTask* answer = nullptr;
};

// The times of the sequence that finished last.
struct RequestTimes {
  absl::Duration queue;    // from Submit() to the start of its batch
  absl::Duration compute;  // the forward pass of its batch
};

struct BatchRequest {
  std::vector<SequenceTask> sequences;  // at least one
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  // Called exactly once, from a worker's thread or from Cancel(), Stop() or Abort(), never with a
  // lock of the batcher held. With OK every output has been written. With any other status the
  // outputs must not be read: kDeadlineExceeded, kCancelled, kUnavailable (the drain ran out of
  // time), or the error of the forward pass. Does not throw.
  std::function<void(const absl::Status&, const RequestTimes&)> done;
};

// A request that was accepted. Opaque; keeps the request's state alive.
class PendingRequest;
using RequestHandle = std::shared_ptr<PendingRequest>;

// How many sequences one batch may skip.
inline constexpr int kMaxLookPast = 64;

struct BatcherOptions {
  int max_batch_tokens = 4096;    // token budget of a batch
  int max_batch_sequences = 256;  // bound on the sequences of a batch
  absl::Duration max_queue_delay = absl::ZeroDuration();
  int64_t max_queue_tokens = 65536;    // waiting tokens; at least max_batch_tokens
  int64_t max_queue_sequences = 8192;  // waiting sequences
  bool admission_by_deadline = true;
  absl::Duration ageing_interval = absl::Milliseconds(500);
  int max_passes = 4;  // 0: nothing is skipped
  // How many batches may run at a time; used to predict waiting times. Changed by SetNumWorkers().
  int num_workers = 1;
};

// Counts and levels, for metrics. Cheap enough to be read on every scrape.
struct BatcherStats {
  int64_t queued_sequences = 0;
  int64_t queued_tokens = 0;
  absl::Duration oldest_age = absl::ZeroDuration();  // of the waiting sequences
  int64_t running_batches = 0;
  RejectCounts rejected;  // requests, since the start
  int64_t expired = 0;    // requests whose deadline passed in the queue, in whole or in part
  int64_t cancelled = 0;  // requests cancelled in the queue, in whole or in part
};

// A batch that a worker has taken and must give back to Batcher::Finish().
class Batch {
 public:
  virtual ~Batch() = default;
  virtual const std::vector<const SequenceTask*>& sequences() const = 0;
  virtual int num_tokens() const = 0;
  // Marks one sequence as failed, whatever status Finish() gives the others. `status` must not be
  // OK.
  virtual void Fail(size_t index, const absl::Status& status) = 0;
};

class Batcher {
 public:
  // kInvalidArgument names the option that is out of range. `clock` must outlive the batcher.
  static absl::StatusOr<std::unique_ptr<Batcher>> Create(const BatcherOptions& options,
                                                         const Clock* clock);
  virtual ~Batcher() = default;

  // See above. If the request is refused because of the queue's bounds or its deadline, and
  // `retry_after` is not null, it is set to the retry delay (admission.h).
  virtual absl::StatusOr<RequestHandle> Submit(BatchRequest&& request,
                                               absl::Duration* retry_after = nullptr) = 0;

  // What Submit() would say now to a request of this size. The service asks before it pays for
  // parsing and for memory for the results, so that a refusal is cheap when too much arrives. A
  // refusal counts as one of Submit(). While there is ample time and room, returns OK without
  // applying the exact rules; Submit() applies them.
  virtual absl::Status CheckAdmission(int64_t num_tokens, int64_t num_sequences, Priority priority,
                                      absl::Time deadline,
                                      absl::Duration* retry_after = nullptr) = 0;

  // The caller is gone. If the request still waits, it leaves the queue and `done` gets kCancelled
  // before this returns (or kDeadlineExceeded, and is counted as expired, if its deadline has
  // passed). Sequences of it that are running are still computed, and `done` follows them. May be
  // called at any time, also after `done`.
  virtual void Cancel(const RequestHandle& handle) = 0;

  // The next batch if one may start now, else null. First answers what has expired. Never blocks:
  // tests and a fake clock drive this. The batch's queue time ends here.
  virtual std::unique_ptr<Batch> TryTakeBatch() = 0;

  // Blocks until TryTakeBatch() gives a batch, and answers what expires meanwhile. Returns null
  // once the batcher is closed and nothing waits any more, or once `*leave` has been set and
  // SetNumWorkers() or Stop() called after it, which takes the worker out of service. The work that
  // it was woken for is left to the others.
  virtual std::unique_ptr<Batch> TakeBatch(const std::atomic<bool>* leave = nullptr) = 0;

  // Hands a batch back. `status` is that of the forward pass, `compute` the time it took. Calls
  // `done` of each request all of whose sequences are finished, and learns the model's speed.
  virtual void Finish(std::unique_ptr<Batch> batch, const absl::Status& status,
                      absl::Duration compute) = 0;

  // This many workers, at least one, remain; the others return from TakeBatch().
  virtual void SetNumWorkers(int num_workers) = 0;

  // No worker is left that could run a batch: every waiting request is answered with `status`,
  // which must be kUnavailable, and from now on Submit() refuses with its message.
  virtual void Stop(const absl::Status& status) = 0;

  // From now on Submit() gives kUnavailable. Requests that were accepted are still served.
  virtual void Close() = 0;
  // Answers every waiting request with `status`, which must not be OK; for a drain that ran out of
  // time.
  virtual void Abort(const absl::Status& status) = 0;

  virtual BatcherStats stats() const = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_BATCHER_H_
