// Places: where each sequence of a scheduler is, and how much is where: what waits for prefill,
// what decodes, what is paused or starved, what has begun on which device, which steps run. It
// decides nothing; starvation.h and step_composer.h do, by what it says.
//
// Not thread-safe: the scheduler's mutex guards it. The arrival of a sequence, its end and a
// portion of prefill take O(log n) operations, a row of a sequence that decodes O(1).
#ifndef SRU_SERVER_BATCHING_STEPS_PLACES_H_
#define SRU_SERVER_BATCHING_STEPS_PLACES_H_

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/time/time.h"
#include "server/batching/queue/admission.h"
#include "server/batching/queue/fair_order.h"
#include "server/batching/queue/order_tree.h"
#include "server/batching/steps/scheduled_sequence.h"

namespace sru::server::batching {

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

// The sequences of a flow, by place.
struct FlowPlaces : FlowShare {
  struct Device {
    OrderTree fed;                              // that have begun here
    std::array<DecodeList, kClasses> decoding;  // [priority]

    // The sequence that decodes next; null if none does.
    ScheduledSequence* NextDecoding() const;
  };

  OrderTree fresh;             // that have begun nowhere
  std::deque<Device> devices;  // [device]
  int64_t live = 0;            // as Places::Levels have them
  int64_t begun = 0;
  int64_t begun_branches = 0;
  int64_t waiting_rows = 0;
};

// How much is in the trees of all flows.
struct FedWeight {
  int64_t sequences = 0;
  OrderWeight weight;
};

class Places {
 public:
  struct Device {
    int workers = 0;
    bool lost = false;
    int64_t bound = 0;           // sequences that have begun here
    int64_t begun_branches = 0;  // of these
    int running_steps = 0;
    int64_t running_rows = 0;
    bool fed_last = false;         // the last step had room for prefill only
    OrderTree trying;              // that were starved and have begun here
    FedWeight fed;                 // with them
    int64_t decode_sequences = 0;  // in the lists of all flows
    int64_t decode_rows = 0;
  };
  struct Levels {
    int num_workers = 0;
    int64_t live = 0;
    int64_t begun = 0;
    int64_t paused = 0;
    int64_t paused_begun = 0;
    int64_t holders = 0;       // of memory
    int64_t waiting_rows = 0;  // of prefill
    int64_t begun_later = 0;   // ScheduledSequence::later of what has begun
    int64_t running_steps = 0;
    int64_t running_fed_rows = 0;
    int64_t running_decode_rows = 0;
    int64_t replayed = 0;  // how often a sequence had to be computed again, since the start
  };

  // [device]: how many workers it has. `admission` orders arrivals, and must outlive the places.
  Places(const std::vector<int>& workers, absl::Duration ageing_interval, Admission* admission);

  const Levels& levels() const { return levels_; }
  std::vector<Device>& devices() { return devices_; }
  const std::vector<Device>& devices() const { return devices_; }
  const FedWeight& fresh() const { return fresh_; }      // that have begun nowhere
  const OrderTree& trying() const { return trying_; }    // of these, those that were starved
  const OrderTree& starved() const { return starved_; }  // that wait for memory
  const OrderTree& expiry() const { return expiry_; }    // by deadline
  FairOrder<FlowPlaces>& flows() { return flows_; }
  ScheduledSequence* oldest() const { return oldest_; }
  ScheduledSequence* newest() const { return newest_; }

  // Where a flow's sequences are to be; may throw std::bad_alloc.
  FlowPlaces* PlacesOf(const FlowHandle& flow);
  // A sequence of the flow arrives.
  void Join(ScheduledSequence* s, FlowPlaces* flow, absl::Time now);

  // These take a sequence that is in no step out of wherever it waits.
  // It ends.
  void Leave(ScheduledSequence* s);
  // It waits where its need says.
  void Attach(ScheduledSequence* s, absl::Time now);
  // It waits among the starved, nowhere before: first those that hold memory, then by arrival.
  void AttachStarved(ScheduledSequence* s);
  // It gives up what it has computed and where, and is nowhere.
  void Rewind(ScheduledSequence* s);

  // Takes `rows` of a sequence that waits into a step; StartStep() counts what a step has.
  void Take(ScheduledSequence* s, Step* step, int64_t rows);
  void StartStep(const Step& step) { CountStep(step, 1); }
  // The step has come back. Its sequences are nowhere once each has been returned.
  void EndStep(const Step& step) { CountStep(step, -1); }
  void Return(ScheduledSequence* s);
  // It has taken the rows that it was granted.
  void Advance(ScheduledSequence* s);

  // Returns how many workers are left.
  int LoseDevice(int device);

 private:
  void Detach(ScheduledSequence* s);
  void CountRows(ScheduledSequence* s, int64_t rows);
  void CountLater(ScheduledSequence* s, int64_t rows);
  void CountHeld(ScheduledSequence* s);
  void CountStep(const Step& step, int sign);
  void Unbind(ScheduledSequence* s);
  // Puts it into the tree where it waits to be fed, or takes it out.
  void CountFed(ScheduledSequence* s, int sign);
  OrderTree& FedTree(const ScheduledSequence& s) {
    const bool fresh = s.device == kAnyDevice;
    if (s.trying) return fresh ? trying_ : devices_[s.device].trying;
    return fresh ? s.flow->fresh : s.flow->devices[s.device].fed;
  }

  Admission* const admission_;
  std::vector<Device> devices_;
  FairOrder<FlowPlaces> flows_;
  FedWeight fresh_;
  OrderTree trying_;
  OrderTree starved_;
  OrderTree expiry_;
  ScheduledSequence* oldest_ = nullptr;
  ScheduledSequence* newest_ = nullptr;
  Levels levels_;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_PLACES_H_
