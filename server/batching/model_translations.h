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

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/batching/step_runner.h"
#include "server/batching/step_workers.h"
#include "server/batching/translate_sequence.h"
#include "server/batching/translations.h"

namespace sru::server::batching {

// Of `scheduler`, the max_step_..., max_waiting_..., admission_by_deadline and ageing_interval are read.
struct ModelTranslationsOptions : StepWorkersOptions {
  TranslateSequence::Model model;
  int source_vocabulary = 0;
  int target_vocabulary = 0;
  int max_positions = 0;  // longest source and longest translation, in tokens
};

class ModelTranslations : public Translations {
 public:
  // One worker per runner. `clock` must outlive the translations, and so must `observer`, which may be
  // null. kInvalidArgument names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<ModelTranslations>> Create(
      std::vector<std::unique_ptr<StepRunner>> runners, const ModelTranslationsOptions& options,
      const Clock* clock, TranslateObserver* observer);

  virtual StepWorkers& workers() = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_MODEL_TRANSLATIONS_H_
