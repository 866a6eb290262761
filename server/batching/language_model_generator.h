// LanguageModelGenerator: the generator of one version of a language model, whose steps are run by
// StepWorkers.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_LANGUAGE_MODEL_GENERATOR_H_
#define SRU_SERVER_BATCHING_LANGUAGE_MODEL_GENERATOR_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/base/clock.h"
#include "server/batching/generate_sequence.h"
#include "server/batching/generator.h"
#include "server/batching/step_runner.h"
#include "server/batching/step_workers.h"

namespace sru::server::batching {

struct LanguageModelGeneratorOptions : StepWorkersOptions {
  GenerateSequence::Model model;
  int vocabulary_size = 0;
};

class LanguageModelGenerator : public Generator {
 public:
  // One worker per runner. `clock` must outlive the generator, and so must `observer`, which may be
  // null. kInvalidArgument names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<LanguageModelGenerator>> Create(
      std::vector<std::unique_ptr<StepRunner>> runners,
      const LanguageModelGeneratorOptions& options, const Clock* clock, GenerateObserver* observer);

  virtual StepWorkers& workers() = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_LANGUAGE_MODEL_GENERATOR_H_
