// Engine: all that computes for one version of a model: a BatchSource if it takes batches, a
// StepSource if it goes on in steps, or both. What they run is made by a row of the table of tasks
// (TaskRunners). The weights are shared; the threads are those of a pool (worker_pool.h).
//
// A device that fails for good is taken out of service (work_source.h). It stays out until the
// process is restarted: an engine that is created after the loss starts without it.
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
#include "server/batching/prefix_cache.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/state_arenas.h"
#include "server/batching/steps/step_runner.h"
#include "server/batching/steps/step_service.h"
#include "server/batching/worker_pool.h"

namespace sru::server::batching {

// Where a runner runs.
struct RunnerPlace {
  kernels::WorkspaceLimits limits;  // with the device
  std::shared_ptr<kernels::StateArena>
      arena;                              // of the device; null for a model that keeps no states
  std::shared_ptr<PrefixCache> prefixes;  // of the arena; null: none are kept
};

// How models of a task compute: a row of the table of tasks.
struct TaskRunners {
  // Null: the model takes no batches. `model` outlives the runner.
  absl::StatusOr<std::unique_ptr<BatchRunner>> (*make_batch_runner)(
      const models::Model& model, const RunnerPlace& place) = nullptr;
  // Null: it does not go on in steps.
  absl::StatusOr<std::unique_ptr<StepRunner>> (*make_step_runner)(
      const models::Model& model, const RunnerPlace& place) = nullptr;
  bool keeps_states = false;  // of sequences, in arenas
  // Gives the fields of the states that are kept after the beginnings of prompts (prefix_cache.h);
  // null: none are kept.
  const std::vector<kernels::FieldSpec>& (*prefix_fields)(const models::Model& model) = nullptr;

  // The rest is for models that go on in steps.
  int max_cpu_step_tokens = 0;  // of a step on the CPU; 0 = as many as of a batch
  const char* drained = "";     // with what kUnavailable says that a sequence was cut off
  bool result_at_end = false;   // as the next one, of SchedulerOptions
  SchedulerWords words;
};

struct EngineOptions {
  // At most so many batches and so many steps of the model at a time, dealt out to the backend's
  // devices in turn, but no more than the pool has workers for; 0 = as many as that. After the loss
  // of a device there may be fewer: no other device gets more than it would with all in service, so
  // that they still fit into its memory. On the processor one more batch, of at most 256 tokens,
  // may interrupt these.
  int instances = 0;
  // The workers, which all models of a server share. The pool must outlive the engine.
  WorkerPool* pool = nullptr;
  BatcherOptions batcher;  // num_workers is set by the engine
  int max_streams =
      1024;  // calls at a time that get their results step by step; over it they are refused
  // Of each device, for the states of sequences.
  StateBudgets state_budgets;
  // Of each device, for states after the beginnings of prompts (prefix_cache.h); 0 = none are kept.
  size_t prefix_cache_bytes = 0;
  // Called once per device that was taken out or found lost at the start, with no lock held, on a
  // worker's thread or on the one that called Create() or TakeOutDevice(). Must not block or
  // destroy the engine. May be empty.
  std::function<void(int device, const absl::Status& error)> on_device_lost;
};

class Engine {
 public:
  // Makes the workspaces, warms each up, which takes at most a few tens of milliseconds, and begins
  // to serve. `clock` must outlive the engine, and so must `observer`, which
  // may be null. kInvalidArgument names the option that is out of range. kUnavailable when every
  // device has failed.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(std::shared_ptr<const models::Model> model,
                                                        const TaskRunners& task,
                                                        const EngineOptions& options,
                                                        const Clock* clock,
                                                        ComputeObserver* observer);
  // The same without a model and with one batch at a time per runner; options.instances is ignored.
  // For tests.
  static absl::StatusOr<std::unique_ptr<Engine>> CreateWithRunners(
      std::vector<std::unique_ptr<BatchRunner>> runners, const EngineOptions& options,
      const Clock* clock, ComputeObserver* observer);
  // Closes the batcher and waits until every accepted request is answered.
  virtual ~Engine() = default;

  // Only for a model that takes batches.
  virtual Batcher& batcher() = 0;
  // Null for a model that does not go on in steps. Drain() drains it, too.
  virtual StepService* steps() { return nullptr; }
  // Of the queue of batches, or if there is none of what waits for steps.
  virtual BatcherStats queue_stats() { return batcher().stats(); }
  // How many batches, or if it takes none steps, may run at a time on the devices in service.
  virtual int instances() const = 0;
  // Absent for a model that keeps no states.
  virtual std::optional<StateArenas::Stats> state_stats() const { return std::nullopt; }
  // Over all devices. Absent where none are kept.
  virtual std::optional<PrefixCache::Stats> prefix_stats() const { return std::nullopt; }

  // Acts as if a batch had found that this device has failed. Does nothing if that is known
  // already.
  virtual void TakeOutDevice(int device, const absl::Status& error) = 0;

  // Refuses new work.
  virtual void Close() = 0;

  // Close(), and waits until every accepted request is answered, or, at `deadline`, answers
  // those that still wait with kUnavailable. Returns true if nothing was cut off. After false,
  // batches may still be running; their requests are answered when they end, at the latest in the
  // destructor.
  virtual bool Drain(absl::Time deadline) = 0;
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_ENGINE_H_
