#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/base/log.h"
#include "server/base/memory_limit.h"
#include "server/batching/engine.h"
#include "server/wiring/parts.h"

namespace sru::server::wiring {
namespace {

lifecycle::ModelManagerOptions ManagerOptionsFrom(const Options& options) {
  lifecycle::ModelManagerOptions manager;
  static_cast<lifecycle::ModelOptions&>(manager) = options.models;
  manager.free_memory = []() -> std::optional<int64_t> {
    const MemoryLimits memory = ReadMemoryLimits();
    if (memory.limit_bytes == 0) return std::nullopt;
    return memory.available_bytes;
  };
  return manager;
}

}  // namespace

ServedModels::ServedModels(std::unique_ptr<kernels::Backend> backend, Shared* shared)
    : shared_(*shared),
      loader_(
          &shared->options, std::move(backend), &shared->metrics, &shared->clock,
          [this](int device, const absl::Status& error) { device_watch_.Report(device, error); }),
      device_watch_(
          [this](int device, const absl::Status& error) { OnDeviceLost(device, error); }) {}

absl::Status ServedModels::Load() {
  SRU_RETURN_UNLESS_OK(loader_.MakeBackend());
  lifecycle::ModelObserver* const observer = this;
  manager_ = std::make_unique<lifecycle::ModelManager>(
      ManagerOptionsFrom(shared_.options), &loader_, &registry_, &shared_.clock, observer);
  serving_manager_ = manager_.get();
  return manager_->Start();
}

void ServedModels::StartWatch() {
  for (const telemetry::ModelStatus& model : manager_->Statuses()) health_.Set(model.model, false);
  UpdateHealth();
  device_watch_.Start();
}

void ServedModels::BeginDrain() {
  draining_ = true;
  started_ = false;
  if (manager_ != nullptr) manager_->BeginStop();
}

http::Probes ServedModels::probes() const {
  return {[this] { return NotReadyReason(); }, [this] { return in_service_.load(); }};
}

std::string ServedModels::NotReadyReason() const {
  if (draining_) return "draining";
  if (!started_) return "loading";
  if (!in_service_) return "every device has failed";
  if (shared_.options.models.control == lifecycle::ModelControl::kExplicit ||
      !registry_.List().empty()) {
    return "";
  }
  return "no model is loaded; see sru_client models --status";
}

// Runs on the watch's thread.
void ServedModels::OnDeviceLost(int device, const absl::Status& error) {
  for (const auto& served : registry_.List()) served->engine->TakeOutDevice(device, error);
  const std::vector<kernels::DeviceInfo> devices = loader_.backend()->devices();
  const auto index = static_cast<size_t>(device);
  const std::string name = index < devices.size() ? absl::StrCat("device ", devices[index].ordinal,
                                                                 " (", devices[index].name, ")")
                                                  : absl::StrCat("device ", device);
  LogError(absl::StrCat(
      name, " has failed and is out of service until the next start: ", error.message()));
  for (const auto& served : registry_.List()) {
    LogError(absl::StrCat("model ", served->model->name(), " version ", served->model->version(),
                          ": ", served->engine->instances(), " instances left"));
  }
  UpdateHealth();
}

// Updates the health of every served model and of the server. A model with several versions is
// healthy when all of them are: a health check does not name a version. The server as a whole is
// healthy and ready as long as any version is: with only some of its GPUs it is still worth its
// place behind a load balancer.
void ServedModels::UpdateHealth() {
  MutexLock lock(&health_mutex_);
  std::map<std::string, bool> serving;
  const std::vector<std::shared_ptr<lifecycle::ServedModel>> models = registry_.List();
  bool any = models.empty();
  for (const auto& served : models) {
    const bool in_service = served->engine->instances() > 0;
    const auto [it, added] = serving.emplace(served->name, in_service);
    if (!added) it->second &= in_service;
    any |= in_service;
  }
  in_service_ = any;
  for (const auto& [model, in_service] : serving) health_.Set(model, in_service);
  for (const char* service : {calls::kInferenceService, calls::kOpenInferenceService, ""}) {
    health_.Set(service, ready());
  }
}

void ServedModels::OnLoad(const models::ModelLocation& /*location*/, absl::Duration duration,
                          const absl::Status& status) {
  if (status.ok()) shared_.metrics.OnModelLoaded(duration);
}

void ServedModels::OnServing(const std::string& model, bool serving) {
  if (!serving) {
    // A running UpdateHealth() may have listed the model before it was unloaded.
    MutexLock lock(&health_mutex_);
    health_.Set(model, false);
  }
  UpdateHealth();
}

}  // namespace sru::server::wiring
