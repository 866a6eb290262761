#include "server/batching/task_runners.h"

#include "server/batching/generate_stepper.h"
#include "server/batching/kernel_batch_runner.h"
#include "server/batching/reader_batch_runner.h"
#include "server/batching/score_batch_runner.h"
#include "server/batching/translate_stepper.h"

namespace sru::server::batching {
namespace {

using BatchRunnerOr = absl::StatusOr<std::unique_ptr<BatchRunner>>;
using StepRunnerOr = absl::StatusOr<std::unique_ptr<StepRunner>>;

TaskRunners ForStacks() {
  TaskRunners row;
  row.make_batch_runner = [](const models::Model& model,
                             const RunnerPlace& place) -> BatchRunnerOr {
    return KernelBatchRunner::Create(model.executable(), model.spec(), place.limits);
  };
  return row;
}

TaskRunners ForLanguageModels() {
  TaskRunners row;
  row.make_batch_runner = [](const models::Model& model,
                             const RunnerPlace& place) -> BatchRunnerOr {
    return ScoreBatchRunner::Create(model.program(), *model.language_model(), place.limits,
                                    place.arena, place.prefixes);
  };
  row.make_step_runner = [](const models::Model& model, const RunnerPlace& place) -> StepRunnerOr {
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

TaskRunners ForTranslators() {
  TaskRunners row;
  row.make_step_runner = [](const models::Model& model, const RunnerPlace& place) -> StepRunnerOr {
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

TaskRunners ForReaders() {
  TaskRunners row;
  row.make_batch_runner = [](const models::Model& model,
                             const RunnerPlace& place) -> BatchRunnerOr {
    return ReaderBatchRunner::Create(model.program(), *model.reader(), place.limits);
  };
  return row;
}

}  // namespace

const TaskRunners& RunnersOf(models::Task task) {
  static const auto* const kStacks = new TaskRunners(ForStacks());
  static const auto* const kLanguageModels = new TaskRunners(ForLanguageModels());
  static const auto* const kTranslators = new TaskRunners(ForTranslators());
  static const auto* const kReaders = new TaskRunners(ForReaders());
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
  }
  return *kStacks;
}

}  // namespace sru::server::batching
