#include "server/wiring/model_loader.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "kernels/choose_backend.h"
#include "models/kernel_status.h"
#include "models/model.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/base/memory_limit.h"
#include "server/batching/engine.h"
#include "server/calls/kinds/call_basics.h"
#include "server/lifecycle/model_registry.h"
#include "server/tasks/tasks.h"

namespace sru::server::wiring {
namespace {

// By default the workers of a version may take a quarter of the memory: during a reload there are
// two versions, and calls need some, too.
constexpr int64_t kWorkspaceShare = 4;
// The most threads that a backend takes.
constexpr int kMostCpuThreads = 1024;

}  // namespace

absl::Status ServedModelLoader::MakeBackend() {
  if (backend_ == nullptr) {
    SRU_RETURN_UNLESS_OK(ChooseBackend());
  }
  state_budgets_ = batching::MakeStateBudgets(options_.batching.state_memory_mb,
                                              backend_->devices(), ReadMemoryLimits());
  batching::WorkerPoolOptions pool;
  pool.workers.assign(1, NumCores());
  if (const size_t devices = backend_->devices().size(); devices > 0) {
    pool.workers.assign(devices, kernels::kWorkersPerDevice);
  }
  // Only this backend computes in turns, at whose end something else may go first.
  pool.interrupts = absl::string_view(backend_->name()) == "cpu";
  pool.pin_cores = options_.batching.pin_cores;
  pool_ = std::make_unique<batching::WorkerPool>(std::move(pool), &clock_);
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
  // The backend knows the cores of the machine, not the quota.
  backend_options.cpu_cores = NumCores();
  if (backend_options.cpu_threads == 0) {
    backend_options.cpu_threads = std::min(NumCores(), kMostCpuThreads);
  }
  backend_options.cuda_memory_limit_bytes =
      static_cast<size_t>(batching.gpu_memory_limit_mb) * 1000000;
  // Polling occupies a core.
  backend_options.cuda_poll = std::chrono::microseconds(NumCores() >= 4 ? 50 : 0);
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

models::MemoryNeeds ServedModelLoader::NeedsOf(const models::ModelLocation& location) {
  const MemoryLimits memory = ReadMemoryLimits();
  // Load() says what is wrong; this is called where nothing catches it.
  try {
    if (memory.limit_bytes == 0) return models::MemoryNeeds(location.path());
    return models::MemoryNeeds(location.path(), memory.available_bytes);
  } catch (const std::exception&) {
    return {};
  }
}

models::MemoryEstimate ServedModelLoader::EstimateWith(int instances, int max_batch_tokens) const {
  models::MemoryUse use;
  const batching::BatchingOptions& batching = options_.batching;
  use.backend = backend_.get();
  use.bytes = backend_->packed_bytes(batching.compile.dtype);
  // Elsewhere they are in the devices' memory. No more batches run at once than there are workers.
  use.workspaces = backend_->devices().empty() ? std::min(instances, NumCores()) : 0;
  use.max_tokens = max_batch_tokens;
  use.max_sequences = std::min(batching.engine.batcher.max_batch_sequences, max_batch_tokens);
  return needs_.With(use);
}

int ServedModelLoader::Instances() const {
  const batching::EngineOptions& engine = options_.batching.engine;
  if (engine.instances > 0 || !backend_->devices().empty()) return engine.instances;
  const int64_t worker = EstimateWith(1, engine.batcher.max_batch_tokens).workspaces;
  const int64_t share = ReadMemoryLimits().limit_bytes / kWorkspaceShare;
  const int cores = NumCores();
  if (worker <= 0 || share <= 0) return cores;
  return static_cast<int>(std::clamp<int64_t>(share / worker, 1, cores));
}

models::MemoryEstimate ServedModelLoader::Estimate(const models::ModelLocation& location) {
  needs_ = NeedsOf(location);
  return EstimateWith(Instances(), options_.batching.engine.batcher.max_batch_tokens);
}

std::string ServedModelLoader::Cure(int64_t bytes) {
  // A value at the edge would load and then leave no memory for calls.
  const auto room = static_cast<int64_t>(0.85 * static_cast<double>(bytes));
  int tokens = options_.batching.engine.batcher.max_batch_tokens;
  models::MemoryEstimate one = EstimateWith(1, tokens);
  if (one.total() <= room) {
    if (one.workspaces <= 0) return "";
    const int64_t more = one.workspaces + one.workspaces / 20;
    return absl::StrCat("--instances=", 1 + (room - one.total()) / more, " would fit");
  }
  const int least = options_.rpc.limits.max_sequence_tokens;
  while (tokens > least && one.total() > room) {
    tokens = std::max(tokens / 2, least);
    one = EstimateWith(1, tokens);
  }
  const std::string flags = absl::StrCat("--instances=1 --max_batch_tokens=", tokens);
  if (one.total() <= room) return absl::StrCat(flags, " would fit");
  return absl::StrFormat("with %s %.1f MB are missing", flags,
                         static_cast<double>(one.total() - room) / 1e6);
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
  const int instances = Instances();
  const models::MemoryNeeds needs = std::exchange(needs_, {});
  SRU_ASSIGN_OR_RETURN(const models::ModelFiles files, needs.files().has_value()
                                                           ? *needs.files()
                                                           : models::OpenModel(location.path()));
  SRU_ASSIGN_OR_RETURN(const std::shared_ptr<const models::Model> model,
                       models::Model::Load(files, location.name, location.version, *backend_,
                                           options_.batching.compile, state_keys_));
  auto served = std::make_unique<lifecycle::ServedModel>();
  served->name = model->name();
  served->version = model->version();
  served->model = model;
  served->metrics = metrics_.ForModel(
      model->name(), model->version(), options_.batching.engine.batcher.max_batch_tokens,
      [&model](calls::MethodId method) { return calls::Answers(*model, method); });
  batching::EngineOptions engine_options = options_.batching.engine;
  engine_options.instances = instances;
  engine_options.pool = pool_.get();
  engine_options.state_budgets = state_budgets_;
  engine_options.prefix_cache_bytes =
      static_cast<size_t>(options_.batching.prefix_cache_mb) * 1000000;
  engine_options.max_streams = options_.rpc.max_streams;
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

}  // namespace sru::server::wiring
