#include "server/rpc/call_basics.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace sru::server::rpc {

bool IsAboutDeadline(absl::Time deadline, absl::Time arrival, absl::Time now) {
  if (deadline == absl::InfiniteFuture()) return false;
  return now + std::max(absl::Milliseconds(5), (deadline - arrival) / 50) >= deadline;
}

absl::Status DeadlinePassed() {
  return absl::DeadlineExceededError("the deadline passed before the answer was ready");
}

ModelInput InputOf(const models::Model& model) {
  ModelInput input;
  input.tokenizer = model.tokenizer();
  input.vocabulary_size = model.config().embedding.vocabulary_size;
  input.input_size = model.spec().input_size;
  input.takes_features =
      model.task() == models::Task::kClassifier || model.task() == models::Task::kEncoder;
  return input;
}

absl::Status WrongTask(const models::Model& model, telemetry::Method method,
                       absl::string_view needed) {
  return absl::FailedPreconditionError(
      absl::StrCat("model: '", model.name(), "' has the task ", models::TaskName(model.task()),
                   ", ", telemetry::MethodName(method), " needs ", needed));
}

lifecycle::TaskFilter AnswersOf(telemetry::Method method) {
  switch (method) {
    case telemetry::Method::kClassify:
    case telemetry::Method::kEncode:
    case telemetry::Method::kEncodeStream:
      return [](models::Task task) {
        return task == models::Task::kClassifier || task == models::Task::kEncoder;
      };
    case telemetry::Method::kScore:
    case telemetry::Method::kGenerate:
      return [](models::Task task) { return task == models::Task::kLanguageModel; };
    case telemetry::Method::kAnswer:
      return [](models::Task task) { return task == models::Task::kReader; };
    case telemetry::Method::kTranslate:
      return [](models::Task task) { return task == models::Task::kTranslator; };
    case telemetry::Method::kListModels:
    case telemetry::Method::kGetModel:
    case telemetry::Method::kLoadModel:
    case telemetry::Method::kUnloadModel:
    case telemetry::Method::kModelInfer:  // its models have names
    case telemetry::Method::kModelStreamInfer:
    case telemetry::Method::kServerLive:
    case telemetry::Method::kServerReady:
    case telemetry::Method::kModelReady:
    case telemetry::Method::kServerMetadata:
    case telemetry::Method::kModelMetadata:
    case telemetry::Method::kModelConfig:
    case telemetry::Method::kModelStatistics:
    case telemetry::Method::kRepositoryIndex:
    case telemetry::Method::kRepositoryModelLoad:
    case telemetry::Method::kRepositoryModelUnload:
      break;
  }
  return nullptr;
}

std::string NoMemoryLeft(const ByteBudget& budget, int64_t wanted) {
  if (wanted > budget.limit()) {
    return absl::StrCat("memory: the call would take about ", wanted,
                        " bytes, all calls together may take ", budget.limit(),
                        " (--max_inflight_mb); send smaller calls");
  }
  return absl::StrCat("memory: calls hold ", budget.used(), " of ", budget.limit(),
                      " bytes (--max_inflight_mb), this one would take about ", wanted,
                      "; retry later");
}

}  // namespace sru::server::rpc
