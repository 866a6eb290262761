// StepComposer: which sequences of a scheduler take part in the next step of a device, by the rules
// of sequence_scheduler.h, and how long new ones will take beside those that are there.
//
// Not thread-safe: the scheduler's mutex guards it.
#ifndef SRU_SERVER_BATCHING_STEPS_STEP_COMPOSER_H_
#define SRU_SERVER_BATCHING_STEPS_STEP_COMPOSER_H_

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "server/batching/queue/admission.h"
#include "server/batching/queue/speed_model.h"
#include "server/batching/steps/places.h"
#include "server/batching/steps/step_service.h"

namespace sru::server::batching {

inline constexpr double kSlowestStep = 3;
inline constexpr int kLeastPortion = 32;
inline constexpr absl::Duration kStepPiece = absl::Milliseconds(2);

class StepComposer : public AdmissionLoad {
 public:
  // All must outlive it.
  StepComposer(const SchedulerOptions& options, Places* places, Admission* admission)
      : options_(options), places_(*places), admission_(*admission) {}

  // Null if no step may start.
  std::unique_ptr<Step> Compose(int device, absl::Time now);
  // Whose rows the next step of the device, which may start, begins with.
  const Flow* FirstFlow(int device, absl::Time now);
  // How many more steps of the device may start with the work that there is.
  int64_t StepsToStart(int device) const;
  // A step has run that took `rows` rows.
  void Learn(const Step& step, int64_t rows, absl::Duration busy);

  Levels levels(const Flow* flow, absl::Time now) const override;
  Prediction Predict(const OrderKey& key, const AdmissionRequest& request,
                     absl::Time now) const override;
  double BacklogSeconds(absl::Time now) const override;

 private:
  using Device = Places::Device;

  // How many steps of a device may run at a time with the work that there is.
  int64_t UsefulSteps(const Device& device) const;
  // True if a sequence that has begun nowhere may begin on the device.
  bool MayBeginHere(const Device& device, const ScheduledSequence& first) const;
  bool MayStart(int device) const;
  // The first of those that have begun on the device and of those that may begin there; null if
  // there is none.
  ScheduledSequence* First(const Device& device, const OrderTree& fed,
                           const OrderTree& fresh) const;
  // The sequence of the flow that is fed next on the device.
  ScheduledSequence* NextFedOf(const FlowPlaces& flow, int device) const {
    return First(places_.devices()[device], flow.devices[device].fed, flow.fresh);
  }
  // The next of the starved sequences.
  ScheduledSequence* NextTrying(const Device& device) const {
    return First(device, device.trying, places_.trying());
  }
  // The next of all flows; reorders the flows that have one.
  ScheduledSequence* NextFed(int device) const;
  // Begins to take rows of what decodes on the device, in the order of the flows.
  void StartDecoding(int device);
  void AddDecoding(Step* step, int64_t most_rows, int64_t most_sequences);
  // `most_rows`, or all of a sequence that is fed whole if it is the first and has at most `room`.
  void AddFed(Step* step, int64_t most_rows, int64_t room, int64_t most_sequences);
  // Rows to be fed beside `decode_rows` others.
  int64_t Portion(int64_t decode_rows) const;
  // Until the end, where results come at the end only.
  double SecondsToEnd(const OrderWeight& ahead, const AdmissionRequest& request) const;
  // Until the first result, or `least_steps` - 1 steps more.
  double SecondsToResult(const OrderWeight& ahead, int64_t rows, int least_steps) const;
  // All that waits to be fed, with the rows that follow of what has not begun.
  OrderWeight AllFed() const;

  const SchedulerOptions& options_;
  Places& places_;
  Admission& admission_;
  // Of steps that fed no sequences. Those that did are in admission_: apart, since after many steps
  // of a few rows one model would not know any more how long a large one takes.
  SpeedModel decode_speed_;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_STEPS_STEP_COMPOSER_H_
