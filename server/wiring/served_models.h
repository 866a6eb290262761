// ServedModels: which models are served, by which devices, and what the server therefore says about
// itself: health, readiness and probes. Thread-safe but for Load(), StartWatch() and Stop...().
#ifndef SRU_SERVER_WIRING_SERVED_MODELS_H_
#define SRU_SERVER_WIRING_SERVED_MODELS_H_

#include <atomic>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "base/mutex.h"
#include "server/batching/device_watch.h"
#include "server/http/metrics_server.h"
#include "server/lifecycle/model_manager.h"
#include "server/lifecycle/model_registry.h"
#include "server/rpc/health.h"
#include "server/wiring/model_loader.h"
#include "server/wiring/shared.h"

namespace sru::server::wiring {

class ServedModels final : private lifecycle::ModelObserver {
 public:
  // With a null backend, the options choose one.
  ServedModels(std::unique_ptr<kernels::Backend> backend, Shared* shared);

  // Makes the backend and loads the models of the start.
  absl::Status Load();
  // Publishes the health of all models; from now on lost devices are taken out of service.
  void StartWatch();
  // The server takes calls; ready from now on, if it serves a model.
  void SetStarted();
  // Not ready any more; nothing is loaded or unloaded from now on.
  void BeginDrain();
  void StopWatch() { device_watch_.Stop(); }
  // Waits for a running load and unloads all models. Nothing reads manager() any more.
  void Unload() { manager_.reset(); }

  ServedModelLoader& loader() { return loader_; }
  const ServedModelLoader& loader() const { return loader_; }
  const lifecycle::ModelRegistry& registry() const { return registry_; }
  lifecycle::ModelManager* manager() const { return serving_manager_; }  // null before Load()
  rpc::Health& health() { return health_; }
  std::set<int> lost_devices() const { return device_watch_.lost(); }

  bool draining() const { return draining_; }
  bool ready() const { return NotReadyReason().empty(); }
  // When every device has failed, only a restart may help.
  http::Probes probes() const;

 private:
  // Why calls should go to another server; empty when this one takes them.
  std::string NotReadyReason() const;
  void OnDeviceLost(int device, const absl::Status& error);
  void UpdateHealth();

  // ModelObserver:
  void OnLoad(const models::ModelLocation& location, absl::Duration duration,
              const absl::Status& status) override;
  void OnServing(const std::string& model, bool serving) override;

  Shared& shared_;
  std::atomic<bool> started_{false};  // and not draining
  std::atomic<bool> draining_{false};
  std::atomic<bool> in_service_{true};  // some model has a worker, or there is no model
  ServedModelLoader loader_;
  batching::DeviceWatch device_watch_;
  lifecycle::ModelRegistry registry_;
  std::unique_ptr<lifecycle::ModelManager> manager_;
  std::atomic<lifecycle::ModelManager*> serving_manager_{nullptr};  // for the pages' threads
  Mutex health_mutex_;  // held while health is computed and published
  rpc::Health health_;
};

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_SERVED_MODELS_H_
