#include "server/tasks/runners.h"

#include "server/tasks/answer/reader_batch_runner.h"
#include "server/tasks/generate/generate_stepper.h"
#include "server/tasks/score/score_batch_runner.h"
#include "server/tasks/stacks/stack_batch_runner.h"
#include "server/tasks/tag/tag_batch_runner.h"
#include "server/tasks/translate/translate_stepper.h"

namespace sru::server::tasks {
namespace {

using BatchRunnerOr = absl::StatusOr<std::unique_ptr<batching::BatchRunner>>;
using StepRunnerOr = absl::StatusOr<std::unique_ptr<batching::StepRunner>>;

batching::TaskRunners ForStacks() {
  batching::TaskRunners row;
  row.make_batch_runner = [](const models::Model& model,
                             const batching::RunnerPlace& place) -> BatchRunnerOr {
    return StackBatchRunner::Create(model.executable(), model.spec(), place.limits);
  };
  return row;
}

batching::TaskRunners ForLanguageModels() {
  batching::TaskRunners row;
  row.make_batch_runner = [](const models::Model& model,
                             const batching::RunnerPlace& place) -> BatchRunnerOr {
    return ScoreBatchRunner::Create(model.program(), *model.language_model(), place.limits,
                                    place.arena, place.prefixes);
  };
  row.make_step_runner = [](const models::Model& model,
                            const batching::RunnerPlace& place) -> StepRunnerOr {
    return GenerateStepper::Create(model.program(), *model.language_model(), place.limits,
                                   place.arena, place.prefixes);
  };
  row.keeps_states = true;
  row.prefix_fields = [](const models::Model& model) -> const std::vector<kernels::FieldSpec>& {
    return model.language_model()->program.fields;
  };
  row.step_workers = "workers that generate";
  row.drained = "the server is shutting down; go on from the state on another replica";
  return row;
}

batching::TaskRunners ForTranslators() {
  batching::TaskRunners row;
  row.make_step_runner = [](const models::Model& model,
                            const batching::RunnerPlace& place) -> StepRunnerOr {
    return TranslateStepper::Create(model.program(), *model.translator(), place.limits,
                                    place.arena);
  };
  row.keeps_states = true;
  row.step_workers = "workers that translate";
  row.drained = "the server is shutting down; send the request to another replica";
  row.result_at_end = true;
  row.words.fed = "sequences";
  row.words.before_result = "before the translation was complete";
  return row;
}

batching::TaskRunners ForReaders() {
  batching::TaskRunners row;
  row.make_batch_runner = [](const models::Model& model,
                             const batching::RunnerPlace& place) -> BatchRunnerOr {
    return ReaderBatchRunner::Create(model.program(), *model.reader(), place.limits);
  };
  return row;
}

batching::TaskRunners ForTaggers() {
  batching::TaskRunners row;
  row.make_batch_runner = [](const models::Model& model,
                             const batching::RunnerPlace& place) -> BatchRunnerOr {
    return TagBatchRunner::Create(model, place.limits);
  };
  return row;
}

}  // namespace

const batching::TaskRunners& RunnersOf(models::Task task) {
  static const auto* const kStacks = new batching::TaskRunners(ForStacks());
  static const auto* const kLanguageModels = new batching::TaskRunners(ForLanguageModels());
  static const auto* const kTranslators = new batching::TaskRunners(ForTranslators());
  static const auto* const kReaders = new batching::TaskRunners(ForReaders());
  static const auto* const kTaggers = new batching::TaskRunners(ForTaggers());
  switch (task) {
    case models::Task::kClassifier:
    case models::Task::kEncoder:
      break;
    case models::Task::kLanguageModel:
      return *kLanguageModels;
    case models::Task::kTranslator:
      return *kTranslators;
    case models::Task::kReader:
      return *kReaders;
    case models::Task::kTagger:
      return *kTaggers;
  }
  return *kStacks;
}

}  // namespace sru::server::tasks
