// LanguageModelGenerator: the generator of one version of a language model, whose steps are run by
// StepWorkers.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_LANGUAGE_MODEL_GENERATOR_H_
#define SRU_SERVER_BATCHING_LANGUAGE_MODEL_GENERATOR_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/base/clock.h"
#include "server/batching/generate_sequence.h"
#include "server/batching/generator.h"
#include "server/batching/sequence_scheduler.h"
#include "server/batching/step_runner.h"

namespace sru::server::batching {

struct LanguageModelGeneratorOptions {
  std::string name = "generator";  // for the log
  GenerateSequence::Model model;
  int vocabulary_size = 0;
  int num_devices = 1;
  SchedulerOptions scheduler;  // `workers` is set by the generator
  bool pin_cores = false;
  absl::Duration compute_turn = absl::Microseconds(200);
  // Told by a worker whose device has failed, possibly several times; must call LoseDevice().
  std::function<void(int device, const absl::Status& error)> on_device_lost;
};

class LanguageModelGenerator : public Generator {
 public:
  // One worker per runner. `clock` must outlive the generator, and so must `observer`, which may be
  // null. kInvalidArgument names the option that is out of range.
  static absl::StatusOr<std::unique_ptr<LanguageModelGenerator>> Create(
      std::vector<std::unique_ptr<StepRunner>> runners,
      const LanguageModelGeneratorOptions& options, const Clock* clock, GenerateObserver* observer);

  // Starts the workers and returns once each has warmed up. Call it once; before it no call may be
  // submitted.
  virtual absl::Status Start() = 0;

  // The device has failed. Does nothing if that is known.
  virtual void LoseDevice(int device, const absl::Status& error) = 0;

  // Ends every call as Drain() does at its deadline, and joins the workers. The destructor does it, too.
  virtual void Stop() = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_LANGUAGE_MODEL_GENERATOR_H_
