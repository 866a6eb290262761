// Admission: decides whether work may join what a model already has to do, and says why not. The
// queue of batches (batcher.h) and the scheduler of steps (sequence_scheduler.h) have one each;
// both tell it what waits and how long that will take. Rules, in this order:
//   kUnavailable        Stop() was called (kNoWorker), or Close() (kDraining)
//   kDeadlineExceeded   the deadline has passed already
//   kResourceExhausted  a bound would be passed (kStreams, kQueueFull), or, with admission by
//                       deadline, the work would be late by the measured speed (kDeadline): it
//                       would end after the deadline or, in a queue that stands (kStanding), begin
//                       after a quarter of the time until then; never while a worker is free and
//                       nothing waits, and never before something has been measured
// One caller alone may fill what the bounds allow. Others then find a reserve of half as much
// beyond them, of which each may take its share by weight: nothing that was accepted has to leave
// for them.
//
// Every refusal counts. A refusal for want of room or time comes with a retry delay: the time that
// the waiting work will take by the measured speed, rounded up to a power of two of milliseconds,
// from 1 ms to 10 s; 100 ms if nothing has been measured.
//
// Not thread-safe: its owner's mutex guards it. A Verdict needs no mutex.
#ifndef SRU_SERVER_BATCHING_QUEUE_ADMISSION_H_
#define SRU_SERVER_BATCHING_QUEUE_ADMISSION_H_

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/batching/queue/flow.h"
#include "server/batching/queue/order_tree.h"
#include "server/batching/queue/reject_reason.h"
#include "server/batching/queue/speed_model.h"

namespace sru::server::batching {

// Work has come faster than it was done for so long that it is no burst.
inline constexpr absl::Duration kStanding = absl::Milliseconds(100);
// The part of a call's time that it may wait in a queue that stands. A queue that takes the whole
// time is of no use to anybody: it answers nothing sooner, holds all streams of its clients, so
// that further calls wait there, and its answers come at the last moment, too late for their way
// back.
inline constexpr double kStandingPatience = 0.25;

// Work that is admitted or refused as a whole.
struct AdmissionRequest {
  OrderWeight size;
  Priority priority = Priority::kNormal;
  absl::Time deadline = absl::InfiniteFuture();
  const Flow* flow = nullptr;
  // In steps: the rows after the first result, if callers wait for the end, and the steps until it.
  int64_t later_rows = 0;
  int least_steps = 1;
};

struct AdmissionOptions {
  OrderWeight most;  // that may wait
  int64_t max_streams = std::numeric_limits<int64_t>::max();
  bool by_deadline = true;
  absl::Duration ageing_interval;
  // The work is done in steps, whose number nobody knows in advance: texts name the bound that
  // would be passed, and predictions as the least.
  bool in_steps = false;
  std::string field = "sequences";  // of a request, that a text is about
};

// The owner's present load, for Judge(). Called with the owner's mutex held.
class AdmissionLoad {
 public:
  struct Levels {
    OrderWeight waiting;
    int64_t streams = 0;  // work that has not ended
    // The flow's part of these, and its share of the whole by weight.
    OrderWeight own;
    int64_t own_streams = 0;
    double share = 1;
    bool idle = false;    // a worker is free, and nothing waits for it
    bool stands = false;  // there has been work for every worker for kStanding without a break
  };
  // Seconds from now, without the margin.
  struct Prediction {
    double outcome = 0;   // until what is measured: the first result, or the end
    double deadline = 0;  // until what has to be there before the deadline
    double ahead = 0;     // until what goes first is done
  };

  virtual ~AdmissionLoad() = default;
  virtual Levels levels(const Flow* flow, absl::Time now) const = 0;
  // For a request that joined with `key`.
  virtual Prediction Predict(const OrderKey& key, const AdmissionRequest& request,
                             absl::Time now) const = 0;
  // Until all that waits is done.
  virtual double BacklogSeconds(absl::Time now) const = 0;
};

// The outcome for one request. Valid as long as its Admission.
struct Verdict {
  bool expired = false;                 // its deadline has passed already
  std::optional<RejectReason> refusal;  // why it is refused otherwise
  absl::Time now;
  OrderKey key;                  // with which it joins; its number is taken by TakeNumber()
  double predicted_seconds = 0;  // until what is measured, without the margin; 0 = unknown

  bool accepted() const { return !expired && !refusal.has_value(); }
  // The status for the caller, with the retry delay if waiting helps (server/base/retry.h).
  absl::Status ToStatus() const;

  // ToStatus() makes the text of a refusal from these.
  const AdmissionOptions* options = nullptr;
  absl::Duration retry_after;
  absl::Status stopped;
};

class Admission {
 public:
  Admission(AdmissionOptions options, absl::Time start)
      : options_(std::move(options)), start_(start) {}

  // kInvalidArgument: a request of this size is over what may wait, so that no wait would help.
  // Reads constants only and needs no mutex.
  static absl::Status CheckSize(const AdmissionOptions& options, const OrderWeight& size);

  Verdict Judge(const AdmissionRequest& request, absl::Time now, const AdmissionLoad& load);

  // Smaller goes first. A request rises by one level of priority at each tick of a clock that ticks
  // every ageing_interval.
  int64_t Rank(absl::Time time, Priority priority) const {
    absl::Duration rest;
    return absl::IDivDuration(time - start_, options_.ageing_interval, &rest) -
           static_cast<int64_t>(priority);
  }
  // The number of the next arrival, ascending.
  uint64_t TakeNumber() { return next_number_++; }

  // Refuses from now on: kDraining.
  void Close() { closed_ = true; }
  // Refuses from now on with `status`, which must be kUnavailable: kNoWorker.
  void Stop(const absl::Status& status) {
    closed_ = true;
    stopped_ = status;
  }
  bool closed() const { return closed_; }
  const absl::Status& stopped() const { return stopped_; }  // OK unless Stop() was called

  // The measured speed that predictions are made with.
  SpeedModel& speed() { return speed_; }
  const SpeedModel& speed() const { return speed_; }
  // A prediction and what it came to. Only the worst since the last LearnOutcomes() counts, so that
  // a batch of many requests counts once.
  void AddOutcome(double predicted_seconds, absl::Time arrival, absl::Time deadline,
                  absl::Time now);
  void LearnOutcomes();

  const RejectCounts& rejected() const { return rejected_; }

 private:
  const AdmissionOptions options_;
  const absl::Time start_;
  SpeedModel speed_;
  RejectCounts rejected_;
  uint64_t next_number_ = 0;
  bool closed_ = false;
  absl::Status stopped_;
  double worst_ratio_ = 0;
};

// kInvalidArgument for the first option that is less than its least value.
struct LeastOption {
  const char* name;
  int64_t found;
  int64_t least;
};
absl::Status CheckLeast(std::initializer_list<LeastOption> options, absl::Duration ageing_interval);

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_QUEUE_ADMISSION_H_
