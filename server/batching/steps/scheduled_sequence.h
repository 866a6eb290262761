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
struct Step {
  Step(int on_device, absl::Time now) : device(on_device), start(now) {}

  void Add(ScheduledSequence* sequence, int rows_of_it, const FlowHandle& flow) {
    AddPart(flow, rows_of_it, &parts);
    StepShare& share = shares.emplace_back();
    share.sequence = sequence->sequence.get();
    share.rows = rows_of_it;
    sequences.push_back(sequence->self);
    rows += rows_of_it;
    if (!sequence->need.decoding) fed_rows += rows_of_it;
  }

  const int device;
  absl::Time start;  // later by as much as it was interrupted
  std::vector<StepShare> shares;
  std::vector<SequenceHandle> sequences;  // [share]
  FlowParts parts;                        // whose it is
  int fed_rows = 0;                       // of sequences that do not decode
  int rows = 0;                           // in all
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_SCHEDULED_SEQUENCE_H_
