// Engine: the workers of one model. Each worker is a thread that owns one workspace, takes batches
// from the model's batcher, runs the forward pass and hands the batch back. The weights are shared.
#ifndef SRU_SERVER_ENGINE_H_
#define SRU_SERVER_ENGINE_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "models/model.h"
#include "server/batcher.h"
#include "server/clock.h"

namespace sru::server {

// Told of every batch that ran; called from the workers' threads.
class BatchObserver {
 public:
  virtual ~BatchObserver() = default;
  virtual void OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
                       const absl::Status& status) = 0;
};

struct EngineOptions {
  int instances = 0;       // workers; 0 = what suits the backend: one per core on the CPU
  BatcherOptions batcher;  // num_workers is set by the engine
};

class Engine {
 public:
  // Makes the workspaces, runs one warm-up batch on each and starts the workers.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const models::Model> model,
                                                        const EngineOptions& options,
                                                        const Clock* clock,
                                                        BatchObserver* observer);
  // Closes the batcher, waits for what was accepted and joins the workers.
  virtual ~Engine() = default;

  virtual const std::shared_ptr<const models::Model>& model() const = 0;
  virtual Batcher& batcher() = 0;
  virtual int instances() const = 0;

  // Refuses new work and waits until everything accepted is answered, or answers the rest with
  // kUnavailable at `deadline`. Returns true when nothing was cut off.
  virtual bool Drain(absl::Time deadline) = 0;
};

}  // namespace sru::server

#endif  // SRU_SERVER_ENGINE_H_
