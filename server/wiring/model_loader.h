// ServedModelLoader: makes the backend that the options choose, and loads models for it: their
// weights, their metrics and the engine that computes their calls.
#ifndef SRU_SERVER_WIRING_MODEL_LOADER_H_
#define SRU_SERVER_WIRING_MODEL_LOADER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "models/memory_estimate.h"
#include "models/repository.h"
#include "server/base/clock.h"
#include "server/batching/state_arenas.h"
#include "server/batching/worker_pool.h"
#include "server/lifecycle/model_manager.h"
#include "server/options.h"
#include "server/telemetry/metrics.h"

namespace sru::server::wiring {

// The pointers must outlive it.
class ServedModelLoader final : public lifecycle::ModelLoader {
 public:
  using OnDeviceLost = std::function<void(int device, const absl::Status& error)>;

  // With a null backend, MakeBackend() makes one.
  ServedModelLoader(const Options* options, std::unique_ptr<kernels::Backend> backend,
                    telemetry::Metrics* metrics, const Clock* clock, OnDeviceLost on_device_lost)
      : options_(*options),
        metrics_(*metrics),
        clock_(*clock),
        on_device_lost_(std::move(on_device_lost)),
        backend_(std::move(backend)) {}

  // Before the first model is loaded; null: states have a plain digest.
  void set_state_keys(std::shared_ptr<const models::StateKeys> keys) {
    state_keys_ = std::move(keys);
  }

  // To be called first. An error also says which flag to change.
  absl::Status MakeBackend();

  // Null until there is one; from any thread.
  kernels::Backend* backend() const { return ready_.load() ? backend_.get() : nullptr; }
  // [device]; constant once there is a backend.
  const batching::StateBudgets& state_budgets() const { return state_budgets_; }

  // ModelLoader:
  models::MemoryEstimate Estimate(const models::ModelLocation& location) override;
  std::string Cure(int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<lifecycle::ServedModel>> Load(
      const models::ModelLocation& location) override;

 private:
  absl::Status ChooseBackend();
  // The workers of a version in this process' memory: --instances, or by default one per core, but
  // no more than a quarter of the memory has room for; at least one.
  int Instances() const;
  static models::MemoryNeeds NeedsOf(const models::ModelLocation& location);
  models::MemoryEstimate EstimateWith(int instances, int max_batch_tokens) const;
  absl::StatusOr<std::unique_ptr<lifecycle::ServedModel>> LoadServedModel(
      const models::ModelLocation& location);

  const Options& options_;
  telemetry::Metrics& metrics_;
  const Clock& clock_;
  const OnDeviceLost on_device_lost_;
  std::unique_ptr<kernels::Backend> backend_;
  batching::StateBudgets state_budgets_;
  std::unique_ptr<batching::WorkerPool> pool_;  // of all models; set with the backend
  std::shared_ptr<const models::StateKeys> state_keys_;
  std::atomic<bool> ready_{false};
  models::MemoryNeeds needs_;  // of the version that Estimate() was last asked for
};

}  // namespace sru::server::wiring

#endif  // SRU_SERVER_WIRING_MODEL_LOADER_H_
