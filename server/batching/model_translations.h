// ModelTranslations: the translations of one version of a translator, whose steps are run by StepWorkers.
//
// No more sentences begin than have hypotheses in the steps that a device can run at a time: the others
// wait in the order of their arrival and priority, and hold no memory of the device.
//
// How long a call will take is predicted from the tokens of its sources, by how many tokens the
// translations before it have had for each.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_MODEL_TRANSLATIONS_H_
#define SRU_SERVER_BATCHING_MODEL_TRANSLATIONS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/batching/sequence_scheduler.h"
#include "server/batching/step_runner.h"
#include "server/batching/translate_sequence.h"
#include "server/batching/translations.h"

namespace sru::server::batching {

struct ModelTranslationsOptions {
  std::string name = "translations";  // for the log
  TranslateSequence::Model model;
  int source_vocabulary = 0;
  int target_vocabulary = 0;
  int max_positions = 0;  // longest source and longest translation, in tokens
  int num_devices = 1;
  // Its max_step_..., max_waiting_..., admission_by_deadline and ageing_interval are read.
  SchedulerOptions scheduler;
  bool pin_cores = false;
  absl::Duration compute_turn = absl::Microseconds(200);
  // Told by a worker whose device has failed, possibly several times; must call LoseDevice().
  std::function<void(int device, const absl::Status& error)> on_device_lost;
};

class ModelTranslations : public Translations {
 public:
  // One worker per runner. `clock` must outlive the translations, and so must `observer`, which may be
  // null. kInvalidArgument names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<ModelTranslations>> Create(
      std::vector<std::unique_ptr<StepRunner>> runners, const ModelTranslationsOptions& options,
      const Clock* clock, TranslateObserver* observer);

  // Starts the workers and returns once each has warmed up. Call it once; before it no call may be
  // submitted.
  virtual absl::Status Start() = 0;

  // The device has failed. Does nothing if that is known.
  virtual void LoseDevice(int device, const absl::Status& error) = 0;

  // Ends every call as Drain() does at its deadline, and joins the workers. The destructor does it, too.
  virtual void Stop() = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_MODEL_TRANSLATIONS_H_
