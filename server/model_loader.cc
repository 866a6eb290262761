#include "server/model_loader.h"

#include <algorithm>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "kernels/choose_backend.h"
#include "models/kernel_status.h"
#include "models/model.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/base/memory_limit.h"
#include "server/batching/engine.h"
#include "server/calls/kinds/call_basics.h"
#include "server/lifecycle/load_failure.h"
#include "server/lifecycle/model_registry.h"
#include "server/tasks/tasks.h"

namespace sru::server {

absl::Status ServedModelLoader::MakeBackend() {
  if (backend_ == nullptr) {
    SRU_RETURN_UNLESS_OK(ChooseBackend());
  }
  state_budgets_ = batching::MakeStateBudgets(options_.batching.state_memory_mb,
                                              backend_->devices(), ReadMemoryLimits());
  ready_ = true;
  return absl::OkStatus();
}

absl::Status ServedModelLoader::ChooseBackend() {
  const batching::BatchingOptions& batching = options_.batching;
  const bool names_devices = !batching.hardware.cuda_devices.empty();
  std::string name = batching.backend;
  if (names_devices) {
    if (name == "auto") name = kernels::AvailableBackends().front();
    if (!kernels::BackendHasDevices(name)) {
      return absl::UnavailableError(
          "--devices: this build or machine has no GPU that can be used; --backend=cuda says "
          "why");
    }
  }
  kernels::BackendOptions backend_options = batching.hardware;
  backend_options.cuda_memory_limit_bytes =
      static_cast<size_t>(batching.gpu_memory_limit_mb) * 1000000;
  backend_options.cuda_poll = absl::ToChronoMicroseconds(batching.gpu_poll);
  std::vector<std::string> warnings;
  const absl::Status created =
      models::ToAbslStatus(kernels::ChooseBackend(name, backend_options, &backend_, &warnings));
  for (const std::string& warning : warnings) {
    LogWarning(absl::StrCat("--backend=", batching.backend, ": ", warning));
  }
  if (created.ok()) return created;
  return absl::Status(created.code(), absl::StrCat(names_devices ? "--devices: " : "--backend: ",
                                                   created.message()));
}

models::MemoryEstimate ServedModelLoader::Estimate(const models::ModelLocation& location) {
  models::MemoryUse use;
  const batching::BatchingOptions& batching = options_.batching;
  use.bytes = backend_->packed_bytes(batching.compile.dtype);
  const int cores = NumCores();
  use.threads = batching.hardware.cpu_threads > 0 ? batching.hardware.cpu_threads : cores;
  use.workspaces = batching.engine.instances > 0 ? batching.engine.instances : cores;
  if (!backend_->devices().empty()) use.workspaces = 0;  // in the devices' memory
  const batching::BatcherOptions& batcher = batching.engine.batcher;
  use.max_tokens = batcher.max_batch_tokens;
  use.max_sequences = std::min(batcher.max_batch_sequences, batcher.max_batch_tokens);
  return models::EstimateMemory(location.path(), use);
}

absl::StatusOr<std::unique_ptr<lifecycle::ServedModel>> ServedModelLoader::Load(
    const models::ModelLocation& location) {
  try {
    return LoadServedModel(location);
  } catch (const std::exception& e) {
    const absl::Status failure = lifecycle::ExplainFailure(e);
    return absl::Status(failure.code(), absl::StrCat(location.directory, ": ", failure.message()));
  }
}

absl::StatusOr<std::unique_ptr<lifecycle::ServedModel>> ServedModelLoader::LoadServedModel(
    const models::ModelLocation& location) {
  absl::StatusOr<std::shared_ptr<const models::Model>> loaded =
      models::Model::Load(location.path(), location.name, location.version, *backend_,
                          options_.batching.compile, state_keys_);
  if (!loaded.ok()) return loaded.status();
  const std::shared_ptr<const models::Model>& model = *loaded;
  auto served = std::make_unique<lifecycle::ServedModel>();
  served->name = model->name();
  served->version = model->version();
  served->model = model;
  served->metrics = metrics_.ForModel(
      model->name(), model->version(), options_.batching.engine.batcher.max_batch_tokens,
      [&model](calls::MethodId method) { return calls::Answers(*model, method); });
  batching::EngineOptions engine_options = options_.batching.engine;
  engine_options.state_budgets = state_budgets_;
  engine_options.prefix_cache_bytes =
      static_cast<size_t>(options_.batching.prefix_cache_mb) * 1000000;
  engine_options.max_streams = options_.rpc.max_streams;
  engine_options.step_observer = served->metrics.get();
  engine_options.on_device_lost = on_device_lost_;
  absl::StatusOr<std::unique_ptr<batching::Engine>> engine = batching::Engine::Create(
      model, tasks::RunnersOf(model->task()), engine_options, &clock_, served->metrics.get());
  if (!engine.ok()) {
    return absl::Status(engine.status().code(),
                        absl::StrCat(location.directory, ": ", engine.status().message()));
  }
  served->engine = *std::move(engine);
  int devices = 0;
  for (const kernels::DeviceInfo& device : backend_->devices()) devices += device.lost ? 0 : 1;
  if (served->engine->instances() < devices) {
    LogWarning(absl::StrCat("--instances: ", served->engine->instances(), " for ", devices,
                            " GPUs, so that some hold weights and do nothing"));
  }
  LogInfo(absl::StrCat(
      "loaded model ", model->name(), " version ", model->version(), ": ", model->parameter_count(),
      " parameters, backend ", model->backend_name(), " (", model->backend_description(), "), ",
      kernels::DataTypeName(model->dtype()), ", ", served->engine->instances(), " instances"));
  return served;
}

}  // namespace sru::server
