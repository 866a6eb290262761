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
// Callers share the queue by weight (fair_order.h); what follows is the order of one caller's
// requests, and of all of them if nothing tells callers apart. While several callers use the queue,
// batches are small: they take about kPiece, or more if the work for each batch would be much of
// that. Callers of whom little waits, at most an eighth of such a batch, then share no batch with
// those who have more: their calls would only wait for the others' work.
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
// Admission: a request is taken whole or refused whole, at once, by the rules of admission.h.
// Besides, it is kInvalidArgument if it has no sequence, or one without tokens, or one with more
// tokens than max_batch_tokens, or alone more than the queue may hold. A request is consumed if and
// only if the status is OK; then its `done` is called exactly once.
//
// Submit() may throw std::bad_alloc, and then has not taken the request. Everywhere else that ends
// the process.
//
// A request that expires or is cancelled while it waits leaves the queue before compute and costs
// nothing. Sequences that are in a batch are computed. Expired requests are removed whenever a
// worker takes work. While all workers are busy, it is up to the callers to Cancel() them, as gRPC
// does when the deadline of a call passes.
//
// Thread-safe. Time comes from the injected clock. With n requests waiting, Submit() and Cancel()
// take O(log n) steps and a batch O(log n) for each of its requests.
//
// Before it is destroyed, every batch must have come back through Finish() and the queue must be
// empty (Close(), then serve the rest or Abort()). Otherwise the destructor ends the process, since
// a caller would wait for ever.
#ifndef SRU_SERVER_BATCHING_QUEUE_BATCHER_H_
#define SRU_SERVER_BATCHING_QUEUE_BATCHER_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "server/base/clock.h"
#include "server/batching/queue/admission.h"
#include "server/batching/queue/fair_order.h"
#include "server/batching/queue/flow.h"
#include "server/batching/queue/order_tree.h"
#include "server/batching/queue/reject_reason.h"

namespace sru::server::batching {

// One sequence. What is to be computed of it, and where its results go, is known to those who
// submit it and to the BatchRunner that computes it (batch_runner.h), which know what derives from
// this.
struct SequenceTask {
  int num_tokens = 0;  // at least 1

 protected:
  ~SequenceTask() = default;
};

// A batch, for those who are told of it.
struct BatchRef {
  int64_t number = 0;  // tells batches of this process apart; 0: none, as of steps
  int sequences = 0;
  int tokens = 0;
  absl::Time start;
};

// The times of the sequence that finished last, and the batch that it was in.
struct RequestTimes {
  absl::Duration queue;       // from Submit() to the start of its batch
  absl::Duration compute;     // the forward pass of its batch, or all its steps
  BatchRef batch;             // of what is computed in steps: the size of its largest step
  int steps = 0;              // 0: one batch has computed it
  absl::Duration first_step;  // from Submit() to the end of the first step with a result

  void Met(int sequences, int tokens) {
    ++steps;
    batch.sequences = std::max(batch.sequences, sequences);
    batch.tokens = std::max(batch.tokens, tokens);
  }
};

struct BatchRequest {
  absl::InlinedVector<const SequenceTask*, 2> sequences;  // at least one; the caller's until `done`
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  FlowHandle flow;  // of the caller
  // Called exactly once, from a worker's thread or from Cancel(), Stop() or Abort(), never with a
  // lock of the batcher held. With OK every output has been written. With any other status the
  // outputs must not be read: kDeadlineExceeded, kCancelled, kUnavailable (the drain ran out of
  // time), or the error of the forward pass. Does not throw.
  std::function<void(const absl::Status&, const RequestTimes&)> done;
};

// A request that was accepted. Opaque; keeps the request's state alive.
class PendingRequest;
using RequestHandle = std::shared_ptr<PendingRequest>;

// How much processor time a batch takes while callers compete.
inline constexpr absl::Duration kPiece = absl::Milliseconds(1);
// The longest batch of TryTakeShortBatch().
inline constexpr absl::Duration kShortBatch = absl::Microseconds(300);
// How many sequences one batch may skip.
inline constexpr int kMaxLookPast = 64;

struct BatcherOptions {
  int max_batch_tokens = 4096;    // token budget of a batch
  int max_batch_sequences = 256;  // bound on the sequences of a batch
  absl::Duration max_queue_delay = absl::ZeroDuration();
  int64_t max_queue_tokens = 65536;    // waiting tokens; at least max_batch_tokens
  int64_t max_queue_sequences = 8192;  // waiting sequences
  bool admission_by_deadline = true;   // no flag: an answer after its deadline helps nobody
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
struct Batch {
  struct Share {  // `count` consecutive sequences of one request
    PendingRequest* request;
    int count;
  };

  void Add(PendingRequest* request, const SequenceTask* task);
  // It has been interrupted for so long: that counts as time in the queue.
  void StartLater(absl::Duration by) {
    start += by;
    waited += by;
  }

  std::vector<const SequenceTask*> sequences;
  std::vector<Share> shares;
  FlowParts parts;  // whose it is, in tokens
  // Of sequences, by index: they have failed, whatever status Finish() gives the others. Not OK.
  std::vector<std::pair<size_t, absl::Status>> failures;
  int num_tokens = 0;
  bool left_some = false;  // others waited when it was built
  absl::Time start;
  absl::Duration waited;
  absl::Duration interrupted;  // of its time: the thread that computed it did not run
  double predicted_end = 0;    // seconds since the batcher's start; 0 = unknown
};

class Batcher : private AdmissionLoad {
 public:
  // kInvalidArgument names the option that is out of range. `clock` must outlive the batcher.
  static absl::StatusOr<std::unique_ptr<Batcher>> Create(const BatcherOptions& options,
                                                         const Clock* clock);
  ~Batcher() override;

  // See above. The status has a retry delay (admission.h, server/base/retry.h) if the request is
  // refused because of the queue's bounds or its deadline.
  absl::StatusOr<RequestHandle> Submit(BatchRequest&& request);

  // What Submit() would say now to a request of this size. The service asks before it pays for
  // parsing and for memory for the results, so that a refusal is cheap when too much arrives. A
  // refusal counts as one of Submit(). While there is ample time and room, returns OK without
  // applying the exact rules; Submit() applies them.
  absl::Status CheckAdmission(int64_t num_tokens, int64_t num_sequences, Priority priority,
                              absl::Time deadline, const Flow* flow = nullptr);

  // The caller is gone. If the request still waits, it leaves the queue and `done` gets kCancelled
  // before this returns (or kDeadlineExceeded, and is counted as expired, if its deadline has
  // passed). Sequences of it that are running are still computed, and `done` follows them. May be
  // called at any time, also after `done`.
  void Cancel(const RequestHandle& handle) noexcept;

  // `on_work` is called, without a lock, when a batch may start, or earlier than Next() has said,
  // and when a call other than TryTake...() and Finish() may have left nothing after Close().
  // `wakes_later` is asked at each Submit(). True: it has
  // brought about that work is looked for soon, so that on_work need not be called now. Call it
  // before the first Submit().
  void OnWork(std::function<void()> on_work, std::function<bool()> wakes_later) {
    on_work_ = std::move(on_work);
    wakes_later_ = std::move(wakes_later);
  }
  // When TryTakeBatch() has something to do next, and whose batch it would be.
  NextWork Next(absl::Time now);
  // Close() was called, nothing waits and no batch runs.
  bool IsDone() const;

  // The next batch if one may start now, else null. First answers what has expired. Never blocks.
  // The batch's queue time ends here.
  std::unique_ptr<Batch> TryTakeBatch() { return TryTakeBatchWithin(AllOfABatch(), false); }
  // Likewise for a thread that has little time. The batch is all that waits if that takes at most
  // kShortBatch by the measured speed, half of it if several requests take at most twice as long,
  // so that answers are on their way while the rest is computed; else there is none.
  std::unique_ptr<Batch> TryTakeShortBatch() { return Take(true, AllOfABatch(), false); }
  // Likewise, with at most that much; a single sequence may have more tokens, unless `strictly`.
  std::unique_ptr<Batch> TryTakeBatchWithin(const OrderWeight& most, bool strictly) {
    return Take(/*is_short=*/false, most, strictly);
  }

  // Hands a batch back. `status` is that of the forward pass, `compute` the time it took. Calls
  // `done` of each request all of whose sequences are finished, and learns the model's speed.
  void Finish(std::unique_ptr<Batch> batch, const absl::Status& status, absl::Duration compute);

  // This many batches, at least one, may run at a time from now on.
  void SetNumWorkers(int num_workers);

  // No worker is left that could run a batch: every waiting request is answered with `status`,
  // which must be kUnavailable, and from now on Submit() refuses with its message.
  void Stop(const absl::Status& status);

  // From now on Submit() gives kUnavailable. Requests that were accepted are still served.
  void Close();
  // Answers every waiting request with `status`, which must not be OK; for a drain that ran out of
  // time.
  void Abort(const absl::Status& status);

  BatcherStats stats() const;

 private:
  friend class PendingRequest;
  // Requests whose `done` is to be called.
  using Answers = std::vector<RequestHandle>;

  Batcher(const BatcherOptions& options, const Clock* clock);

  // The waiting requests of a flow.
  struct FlowQueue : FlowShare {
    OrderTree order;
    WaitingWork waiting;
    OrderNode* next = nullptr;  // while a batch is built
  };

  // Judges by the rules of batcher.h, and counts a refusal.
  Verdict Judge(const OrderWeight& own, Priority priority, absl::Time deadline, const Flow* flow)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Calls `done` of each. Never with mutex_ held.
  static void Answer(Answers answers);

  // Seconds since the start.
  double Since(absl::Time time) const { return absl::ToDoubleSeconds(time - start_); }
  Levels levels(const Flow* flow, absl::Time now) const override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A worker is free, and nothing waits for it.
  bool IsIdle() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return oldest_ == nullptr && running_batches_ < num_workers_;
  }
  // Until the request would finish.
  Prediction Predict(const OrderKey& key, const AdmissionRequest& request,
                     absl::Time now) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  double BacklogSeconds(absl::Time now) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Until the batches that run are finished.
  double RunningSeconds(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::max(0.0, predicted_ends_ - static_cast<double>(timed_batches_) * Since(now));
  }
  // Sets ample_budget_; called when the lock is about to be released after a change of the queue.
  void PublishAmpleBudget(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void Enqueue(const RequestHandle& pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Dequeue(PendingRequest* pending) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Takes a request out of the queue with `status`, if it waits there, and adds it to `answers`
  // unless a part of it is running.
  void Drop(PendingRequest* pending, const absl::Status& status, absl::Time now, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropExpired(absl::Time now, Answers* answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(PendingRequest* pending, absl::Time now, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // When the next batch may start; a time in the past means at once.
  absl::Time ReadyAt() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The token budget of the next batch.
  int TokenBudget(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Work of a request leaves the queue.
  void Count(PendingRequest* pending, const OrderWeight& taken)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The tokens of a short batch (TryTakeShortBatch()); 0 if there is none.
  int ShortBatchTokens() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Begins to take pieces of what waits, in the order of flows_.
  void StartFlows(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  OrderWeight AllOfABatch() const {
    return {options_.max_batch_tokens, options_.max_batch_sequences};
  }
  // As TryTakeBatchWithin(), or with `is_short` as TryTakeShortBatch().
  std::unique_ptr<Batch> Take(bool is_short, const OrderWeight& most, bool strictly);
  // Null if no batch may start. As TryTakeBatchWithin().
  std::unique_ptr<Batch> BuildBatch(absl::Time now, const OrderWeight& most, bool strictly)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const BatcherOptions options_;
  const AdmissionOptions admission_options_;
  const Clock* const clock_;
  const absl::Time start_;
  std::function<void()> on_work_ = [] {};
  std::function<bool()> wakes_later_ = [] { return false; };

  mutable Mutex mutex_;

  int num_workers_ ABSL_GUARDED_BY(mutex_);
  Admission admission_ ABSL_GUARDED_BY(mutex_);
  FairOrder<FlowQueue> flows_ ABSL_GUARDED_BY(mutex_);
  WaitingWork waiting_ ABSL_GUARDED_BY(mutex_);
  OrderWeight total_ ABSL_GUARDED_BY(mutex_);  // of waiting_
  OrderTree expiry_ ABSL_GUARDED_BY(mutex_);
  PendingRequest* oldest_ ABSL_GUARDED_BY(mutex_) = nullptr;  // both ends of the list by arrival
  PendingRequest* newest_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Time busy_since_ ABSL_GUARDED_BY(mutex_);  // the last arrival that found IsIdle()

  int64_t running_batches_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t timed_batches_ ABSL_GUARDED_BY(mutex_) = 0;  // running batches with a predicted end
  double predicted_ends_ ABSL_GUARDED_BY(mutex_) = 0;  // the sum of their ends
  BatcherStats counts_ ABSL_GUARDED_BY(mutex_);        // the counters of requests only

  // CheckAdmission() lets a request through without taking the mutex if its deadline is further
  // away than this; Submit() judges it by the exact rules. With the largest value it lets none
  // through.
  std::atomic<int64_t> ample_budget_ns_{std::numeric_limits<int64_t>::max()};
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_BATCHER_H_
