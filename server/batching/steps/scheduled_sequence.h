// ScheduledSequence: a sequence that the scheduler of steps has accepted, with what the parts of
// the scheduler (places.h, starvation.h, step_composer.h) know of it; and Step, what a worker runs
// of some.
//
// All fields are guarded by the scheduler's mutex, except `sequence` and last_tokens, which the
// step that it is in uses, and what is constant once it is accepted.
#ifndef SRU_SERVER_BATCHING_STEPS_SCHEDULED_SEQUENCE_H_
#define SRU_SERVER_BATCHING_STEPS_SCHEDULED_SEQUENCE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/queue/flow.h"
#include "server/batching/queue/order_tree.h"
#include "server/batching/steps/step_runner.h"

namespace sru::server::batching {

inline constexpr int kAnyDevice = -1;

// Where a sequence is.
enum class Place {
  kNowhere,   // ended, or not there yet
  kFed,       // in a tree of those that wait for prefill
  kDecoding,  // in a list of those that wait for their next row
  kStarved,   // in the tree of those that wait for memory
  kPaused,
  kRunning,  // in a step
};

struct OrderHook : OrderNode {};
struct ExpiryHook : OrderNode {};

struct FlowPlaces;  // places.h

class ScheduledSequence : public OrderHook, public ExpiryHook {
 public:
  std::unique_ptr<StepSequence> sequence;
  absl::Time last_tokens = absl::InfinitePast();  // when a step gave some
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  absl::Time arrival;
  uint64_t number = 0;
  FlowPlaces* flow = nullptr;  // whose it is
  int branches = 1;            // as the request says
  int64_t all_later = 0;       // rows by which it is expected to go on, with result_at_end
  double predicted_seconds = 0;
  // Of the sequences that were submitted together, null for a single one: one of them has failed,
  // and their call has been counted.
  std::shared_ptr<bool> call_failed;

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
  int64_t later = 0;         // rest of all_later; its part of the total, once it has begun
  absl::Status end_status;   // why it is to end after the step that it is in
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

using SequenceHandle = std::shared_ptr<ScheduledSequence>;

// A step that a worker has taken and must give back to SequenceScheduler::FinishStep().
class Step {
 public:
  Step(int device, absl::Time start) : device_(device), start_(start) {}

  std::vector<StepShare>& shares() { return shares_; }
  int device() const { return device_; }
  int fed_rows() const { return fed_rows_; }         // of sequences that do not decode
  int rows() const { return rows_; }                 // in all
  const FlowParts& parts() const { return parts_; }  // whose it is

  // For the scheduler.
  void Add(ScheduledSequence* sequence, int rows, const FlowHandle& flow) {
    AddPart(flow, rows, &parts_);
    StepShare& share = shares_.emplace_back();
    share.sequence = sequence->sequence.get();
    share.rows = rows;
    sequences_.push_back(sequence->self);
    rows_ += rows;
    if (!sequence->need.decoding) fed_rows_ += rows;
  }
  // Under the lock it is quicker to allocate once.
  void Reserve(size_t most) {
    shares_.reserve(most);
    sequences_.reserve(most);
  }
  const std::vector<SequenceHandle>& sequences() const { return sequences_; }  // [share]
  absl::Time start() const { return start_; }
  // It was interrupted for so long.
  void StartLater(absl::Duration by) { start_ += by; }

 private:
  const int device_;
  absl::Time start_;
  std::vector<StepShare> shares_;
  std::vector<SequenceHandle> sequences_;
  FlowParts parts_;
  int fed_rows_ = 0;
  int rows_ = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_SCHEDULED_SEQUENCE_H_
