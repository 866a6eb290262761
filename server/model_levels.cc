#include "server/model_levels.h"

#include <optional>
#include <utility>

#include "models/model.h"
#include "server/batching/engine.h"
#include "server/batching/steps/step_service.h"

namespace sru::server {
namespace {

std::optional<batching::StepStats> StepsOf(const lifecycle::ServedModel& served,
                                           models::Task task) {
  batching::StepService* const steps = served.engine->steps();
  if (steps == nullptr || served.model->task() != task) return std::nullopt;
  return steps->stats();
}

}  // namespace

void AddModelLevels(const lifecycle::ModelRegistry& registry, telemetry::ServerLevels* levels) {
  for (const auto& served : registry.List()) {
    levels->models.push_back(
        {served->name, served->version, served->engine->queue_stats(), served->engine->instances(),
         served->metrics->refusals(), models::TaskName(served->model->task()),
         served->engine->state_stats(), StepsOf(*served, models::Task::kLanguageModel),
         served->engine->prefix_stats(), StepsOf(*served, models::Task::kTranslator)});
  }
}

void AddBackendLevels(const ServedModelLoader& loader, const Options& options,
                      const std::set<int>& lost, telemetry::ServerLevels* levels) {
  kernels::Backend* const backend = loader.backend();
  if (backend == nullptr) return;
  levels->backend = backend->name();
  levels->dtype = kernels::DataTypeName(options.batching.compile.dtype);
  levels->isa = backend->instruction_set();
  for (kernels::DeviceInfo& info : backend->devices()) {
    const int index = static_cast<int>(levels->devices.size());
    levels->devices.push_back({std::move(info), lost.count(index) > 0});
  }
  for (const auto& budget : loader.state_budgets()) {
    levels->state_budget_bytes.push_back(budget->bytes());
  }
}

http::ModelView ViewOf(const lifecycle::ModelRegistry& registry,
                       const telemetry::ModelStatus& status) {
  http::ModelView view;
  view.name = status.model;
  view.version = status.version;
  view.state = telemetry::ModelStateName(status.state);
  view.reason = status.message;
  const auto served = registry.Find(status.model, status.version);
  if (status.version == 0 || !served.ok()) return view;
  const auto latest = registry.Find(status.model, 0);
  view.latest = latest.ok() && (*latest)->version == status.version;
  const models::Model& model = *(*served)->model;
  view.description = model.config().description;
  view.backend = model.backend_name();
  view.backend_description = model.backend_description();
  view.dtype = kernels::DataTypeName(model.dtype());
  view.instances = (*served)->engine->instances();
  view.parameters = model.parameter_count();
  view.task = models::TaskName(model.task());
  view.labels = model.labels();
  view.takes_text = model.tokenizer() != nullptr;
  return view;
}

}  // namespace sru::server
