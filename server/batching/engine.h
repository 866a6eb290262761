// Engine: the workers of one model. Each worker is a thread that owns one workspace, takes batches
// from the model's batcher, runs the forward pass and hands the batch back. The weights are shared.
//
// An error of one batch fails only its requests. When the backend calls a batch invalid, its
// sequences are run one by one, so that only the request with the bad input fails.
//
// A batch that there is not enough memory for (std::bad_alloc) fails with kResourceExhausted; its
// worker goes on.
//
// A device that fails for good is taken out of service with all of its workers. Its batch is run
// once more, on another device; only once, so that an input that breaks devices does not break all
// of them. A batch that fails again, or has no device to go to, is answered with kUnavailable. When
// no worker is left, everything that waits is answered so and every new request refused so, at
// once. A device that was taken out stays out until the process is started again: an engine that is
// made after the loss begins without it.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_ENGINE_H_
#define SRU_SERVER_BATCHING_ENGINE_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "models/model.h"
#include "server/base/clock.h"
#include "server/batching/batch_runner.h"
#include "server/batching/batcher.h"

namespace sru::server {

// Told of every batch that ran; called from the workers' threads.
class BatchObserver {
 public:
  virtual ~BatchObserver() = default;
  virtual void OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
                       const absl::Status& status) = 0;
};

struct EngineOptions {
  // Workers, dealt out to the backend's devices in turn; 0 = what suits the backend: one per core
  // on the CPU, two per GPU. After the loss of a device there may be fewer: the others get no more
  // than their share with all in service, so that what fitted their memory still does.
  int instances = 0;
  // Each worker stays on one core out of ProcessCorePool(); the log says which. A worker that
  // cannot be pinned runs all the same, with a warning.
  bool pin_cores = false;
  // After so much work at a time, a worker lets other threads have its core; 0 = never.
  absl::Duration compute_turn = absl::ZeroDuration();
  BatcherOptions batcher;  // num_workers is set by the engine
  // Called once per device that was taken out or found lost at the start, from a thread of the
  // engine's or of the caller of Create() or TakeOutDevice(), with no lock held. Must not block or
  // destroy the engine. May be empty.
  std::function<void(int device, const absl::Status& error)> on_device_lost;
};

class Engine {
 public:
  // Makes the workspaces, starts the workers and returns once each has warmed up: batches of 1
  // token and more, for at most a few tens of milliseconds. `clock` must outlive the engine, and so
  // must `observer`, which may be null. kInvalidArgument names the option that is out of range.
  // kUnavailable when every device has failed.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const models::Model> model,
                                                        const EngineOptions& options,
                                                        const Clock* clock,
                                                        BatchObserver* observer);
  // The same with one worker per runner; options.instances is not read. For tests: `model` may be
  // null.
  static absl::StatusOr<std::unique_ptr<Engine>> CreateWithRunners(
      std::shared_ptr<const models::Model> model, std::vector<std::unique_ptr<BatchRunner>> runners,
      const EngineOptions& options, const Clock* clock, BatchObserver* observer);
  // Closes the batcher, waits for what was accepted and joins the workers.
  virtual ~Engine() = default;

  virtual const std::shared_ptr<const models::Model>& model() const = 0;
  virtual Batcher& batcher() = 0;
  // Workers that are in service.
  virtual int instances() const = 0;

  // As if a batch had found that this device has failed. Does nothing when that is known already.
  virtual void TakeOutDevice(int device, const absl::Status& error) = 0;

  // Refuses new work and waits until everything accepted is answered, or, at `deadline`, answers
  // with kUnavailable what still waits. Returns true when nothing was cut off. After false batches
  // may still run; their requests are answered when they end, at the latest in the destructor.
  virtual bool Drain(absl::Time deadline) = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BATCHING_ENGINE_H_
