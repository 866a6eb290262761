// Engine: all that computes for one version of a model. A model that takes batches has BatchWorkers, one that
// goes on in steps has a Generator or Translations with workers of their own; a translator has only these.
// The weights are shared.
//
// A device that fails for good is taken out of service with all of its workers (workers.h). It stays out
// until the process is restarted: an engine that is created after the loss starts without it.
//
// Thread-safe.
#ifndef SRU_SERVER_BATCHING_ENGINE_H_
#define SRU_SERVER_BATCHING_ENGINE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "models/model.h"
#include "server/base/clock.h"
#include "server/batching/batch_runner.h"
#include "server/batching/batcher.h"
#include "server/batching/prefix_cache.h"
#include "server/batching/state_arenas.h"

namespace sru::server::batching {

class GenerateObserver;
class Generator;
class TranslateObserver;
class Translations;

struct EngineOptions {
  // Workers, dealt out to the backend's devices in turn; 0 = as many as suit the backend: one per
  // core on the CPU, two per GPU. After the loss of a device there may be fewer: no other device
  // gets more workers than it would with all in service, so that they still fit into its memory.
  int instances = 0;
  // Each worker stays on one core out of ProcessCorePool(); the log says which. A worker that
  // cannot be pinned runs anyway, with a warning.
  bool pin_cores = false;
  // After this much work at a time, a worker yields its core to other threads; 0 = never.
  absl::Duration compute_turn = absl::Microseconds(200);
  BatcherOptions batcher;  // num_workers is set by the engine
  int max_streams = 1024;  // calls that generate at a time; over it they are refused
  // Is told of the steps of a language model's generator; must outlive the engine. May be null.
  GenerateObserver* generate_observer = nullptr;
  // The same of a translator's translations.
  TranslateObserver* translate_observer = nullptr;
  // Of each device, for the states of sequences; empty = 256 MiB on each, of this engine alone.
  StateBudgets state_budgets;
  // Of each device, for states after the beginnings of prompts (prefix_cache.h); 0 = none are kept.
  size_t prefix_cache_bytes = 0;
  // Called once per device that was taken out or found lost at the start, with no lock held, on a
  // thread of the engine or on the one that called Create() or TakeOutDevice(). Must not block or
  // destroy the engine. May be empty.
  std::function<void(int device, const absl::Status& error)> on_device_lost;
};

class Engine {
 public:
  // Makes the workspaces, starts the workers and returns once each has warmed up, which takes at
  // most a few tens of milliseconds. `clock` must outlive the engine, and so must `observer`, which
  // may be null. kInvalidArgument names the option that is out of range. kUnavailable when every
  // device has failed.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const models::Model> model,
                                                        const EngineOptions& options,
                                                        const Clock* clock,
                                                        BatchObserver* observer);
  // The same with one worker per runner; options.instances is ignored. For tests: `model` may be
  // null.
  static absl::StatusOr<std::unique_ptr<Engine>> CreateWithRunners(
      std::shared_ptr<const models::Model> model, std::vector<std::unique_ptr<BatchRunner>> runners,
      const EngineOptions& options, const Clock* clock, BatchObserver* observer);
  // Closes the batcher, waits until every accepted request is answered and joins the workers.
  virtual ~Engine() = default;

  virtual const std::shared_ptr<const models::Model>& model() const = 0;
  // For a model that takes no batches, nobody takes any from it: calls are refused by the model's task.
  virtual Batcher& batcher() = 0;
  // Of the queue that the model has: of batches, or of sentences to translate.
  virtual BatcherStats queue_stats() { return batcher().stats(); }
  // The number of workers in service.
  virtual int instances() const = 0;
  // Null for a model that keeps no states.
  virtual const StateArenas* state_arenas() const { return nullptr; }
  // Over all devices. Absent where none are kept.
  virtual std::optional<PrefixCache::Stats> prefix_stats() const { return std::nullopt; }
  // Null for a model that cannot generate. Drain() drains it, too.
  virtual Generator* generator() { return nullptr; }
  // Null for a model that does not translate; one that does computes nothing else. Drain() drains it,
  // too.
  virtual Translations* translations() { return nullptr; }

  // Acts as if a batch had found that this device has failed. Does nothing if that is known
  // already.
  virtual void TakeOutDevice(int device, const absl::Status& error) = 0;

  // Refuses new work and waits until every accepted request is answered, or, at `deadline`, answers
  // those that still wait with kUnavailable. Returns true if nothing was cut off. After false,
  // batches may still be running; their requests are answered when they end, at the latest in the
  // destructor.
  virtual bool Drain(absl::Time deadline) = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_ENGINE_H_
