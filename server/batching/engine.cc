#include "server/batching/engine.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/in_parallel.h"
#include "server/base/cores.h"
#include "server/batching/batch_workers.h"
#include "server/batching/step_workers.h"

namespace sru::server::batching {
namespace {

constexpr int kMaxInstances = 1024;
// The largest batch that a loop computes while all workers are busy.
constexpr int kLoopTokens = 256;

// [device]: that of its arena, or null if it had failed already; empty if no prefixes are kept.
using PrefixCaches = std::vector<std::shared_ptr<PrefixCache>>;

PrefixCaches MakePrefixCaches(const models::Model& model, const TaskRunners& task,
                              size_t budget_bytes, const StateArenas* state_arenas) {
  PrefixCaches caches;
  if (budget_bytes == 0 || task.prefix_fields == nullptr) return caches;
  for (int device = 0; device < model.compiled().num_devices(); ++device) {
    auto arena = state_arenas->arena(device);
    caches.push_back(!arena.ok() ? nullptr
                                 : std::make_shared<PrefixCache>(
                                       *std::move(arena), BytesOfState(task.prefix_fields(model)),
                                       budget_bytes));
  }
  return caches;
}

bool IsOnCpu(const models::Model& model) { return model.compiled().workers_per_device() == 0; }

int MaxStepTokens(const models::Model& model, const TaskRunners& task,
                  const EngineOptions& options) {
  const int most = options.batcher.max_batch_tokens;
  return IsOnCpu(model) && task.max_cpu_step_tokens > 0 ? std::min(most, task.max_cpu_step_tokens)
                                                        : most;
}

class EngineImpl : public Engine {
 public:
  EngineImpl(std::shared_ptr<const models::Model> model,
             std::shared_ptr<const StateArenas> state_arenas, PrefixCaches prefixes,
             const EngineOptions& options, const Clock* clock)
      : model_(std::move(model)),
        state_arenas_(std::move(state_arenas)),
        prefixes_(std::move(prefixes)),
        clock_(clock),
        seats_(options.seats),
        on_device_lost_(options.on_device_lost) {}

  ~EngineImpl() override {
    // First: their workers may report a device.
    if (steps_ != nullptr) steps_->Stop();
    if (batches_ != nullptr) batches_->Stop();
    if (seats_ != nullptr) seats_->Forget(this);
  }

  // One of these or both, before Start().
  absl::Status MakeBatches(std::vector<std::unique_ptr<BatchRunner>> runners,
                           BatchWorkers::LoopRunner loop_runner, const EngineOptions& options,
                           BatchObserver* observer) {
    SRU_ASSIGN_OR_RETURN(
        batches_, BatchWorkers::Create(std::move(runners), WorkersOptionsOf(options),
                                       options.batcher, clock_, observer, std::move(loop_runner)));
    return absl::OkStatus();
  }
  absl::Status MakeSteps(std::vector<std::unique_ptr<StepRunner>> runners, const TaskRunners& task,
                         const EngineOptions& options) {
    StepWorkersOptions steps;
    static_cast<WorkersOptions&>(steps) = WorkersOptionsOf(options);
    steps.workers = task.step_workers;
    steps.thread = "sru_steps";
    steps.drain_status = absl::UnavailableError(task.drained);
    steps.num_devices = model_->compiled().num_devices();
    SchedulerOptions& scheduler = steps.scheduler;
    scheduler.max_step_tokens = MaxStepTokens(*model_, task, options);
    scheduler.max_step_sequences = options.batcher.max_batch_sequences;
    scheduler.max_waiting_rows = options.batcher.max_queue_tokens;
    scheduler.admission_by_deadline = options.batcher.admission_by_deadline;
    scheduler.ageing_interval = options.batcher.ageing_interval;
    scheduler.words = task.words;
    scheduler.result_at_end = task.result_at_end;
    if (task.result_at_end) {
      // No more begin than have branches in the steps that a device can run at a time: the others
      // wait, and hold no memory of the device.
      std::vector<int64_t> workers(steps.num_devices);
      for (const auto& runner : runners) ++workers[runner->device()];
      scheduler.max_begun_branches =
          *std::max_element(workers.begin(), workers.end()) * scheduler.max_step_sequences;
      scheduler.max_waiting_sequences = options.batcher.max_queue_sequences;
      scheduler.max_streams = std::numeric_limits<int>::max();
    } else {
      scheduler.max_streams = options.max_streams;
    }
    SRU_ASSIGN_OR_RETURN(
        steps_, StepWorkers::Create(std::move(runners), steps, clock_, options.step_observer));
    return absl::OkStatus();
  }

  // Starts the workers and waits until all have warmed up. After an error nothing is served.
  absl::Status Start() {
    for (Workers* const workers :
         {static_cast<Workers*>(batches_.get()), static_cast<Workers*>(steps_.get())}) {
      if (workers == nullptr) continue;
      SRU_RETURN_UNLESS_OK(workers->Start());
    }
    if (instances() > 0) return absl::OkStatus();
    return absl::UnavailableError("every device failed while the generator warmed up");
  }

  Batcher& batcher() override { return batches_->batcher(); }
  StepService* steps() override { return steps_.get(); }
  BatcherStats queue_stats() override {
    if (batches_ != nullptr) return batcher().stats();
    const StepStats steps = steps_->stats();
    BatcherStats stats;
    stats.queued_sequences = steps.waiting;
    stats.queued_tokens = steps.waiting_rows;
    stats.rejected = steps.rejected;
    stats.expired = steps.expired;
    stats.cancelled = steps.cancelled;
    return stats;
  }
  int instances() const override { return first_workers().in_service(); }
  const StateArenas* state_arenas() const override { return state_arenas_.get(); }
  std::optional<PrefixCache::Stats> prefix_stats() const override {
    if (prefixes_.empty()) return std::nullopt;
    PrefixCache::Stats sum;
    for (const std::shared_ptr<PrefixCache>& cache : prefixes_) {
      if (cache == nullptr) continue;
      const PrefixCache::Stats stats = cache->stats();
      sum.hits += stats.hits;
      sum.misses += stats.misses;
      sum.hit_tokens += stats.hit_tokens;
      sum.evictions += stats.evictions;
      sum.states += stats.states;
      sum.bytes += stats.bytes;
    }
    return sum;
  }

  void TakeOutDevice(int device, const absl::Status& error) override {
    if (!first_workers().LoseDevice(device, error)) return;
    if (batches_ != nullptr && steps_ != nullptr) steps_->LoseDevice(device, error);
    if (on_device_lost_) on_device_lost_(device, error);
  }

  void Close() override {
    if (batches_ != nullptr) batches_->Close();
    if (steps_ != nullptr) steps_->Close();
  }

  bool Drain(absl::Time deadline) override {
    Close();  // both drain together, not one after the other
    const bool steps = steps_ == nullptr || steps_->Drain(deadline);
    const bool batches = batches_ == nullptr || batches_->Drain(deadline);
    return steps && batches;
  }

 private:
  // Where every device of the model has workers.
  Workers& first_workers() const {
    return batches_ != nullptr ? static_cast<Workers&>(*batches_) : *steps_;
  }

  WorkersOptions WorkersOptionsOf(const EngineOptions& options) {
    WorkersOptions workers;
    if (model_ != nullptr) {
      workers.name = absl::StrCat("model ", model_->name(), " version ", model_->version());
    }
    workers.pin_cores = options.pin_cores;
    workers.compute_turn = options.compute_turn;
    workers.seats = options.seats;
    workers.model = this;
    workers.times_threads = model_ != nullptr && IsOnCpu(*model_);
    workers.on_device_lost = [this](int device, const absl::Status& error) {
      TakeOutDevice(device, error);
    };
    return workers;
  }

  const std::shared_ptr<const models::Model> model_;       // null in tests
  const std::shared_ptr<const StateArenas> state_arenas_;  // may be null
  const PrefixCaches prefixes_;
  const Clock* const clock_;
  CoreSeats* const seats_;  // may be null
  const std::function<void(int, const absl::Status&)> on_device_lost_;

  // Constant once started, and thread-safe by themselves. Null where the model has none.
  std::unique_ptr<BatchWorkers> batches_;
  std::unique_ptr<StepWorkers> steps_;
};

int DefaultInstances(const kernels::CompiledModel& compiled) {
  if (const int per_device = compiled.workers_per_device(); per_device > 0) {
    return per_device * compiled.num_devices();
  }
  return NumCores();
}

constexpr size_t kDefaultStateBytes = size_t{256} << 20;

absl::StatusOr<std::shared_ptr<const StateArenas>> MakeStateArenas(const models::Model& model,
                                                                   StateBudgets budgets) {
  if (budgets.empty()) {
    for (int i = 0; i < model.program().num_devices(); ++i) {
      budgets.push_back(std::make_shared<kernels::ArenaBudget>(kDefaultStateBytes));
    }
  }
  return StateArenas::Create(model.program(), budgets);
}

// How many turns of a batch (EngineOptions::compute_turn) a step computes before it yields its
// core. All sequences of a step wait for it, hundreds of times each, and a thread that yields may
// be given its core back only after every other thread has had a slice of milliseconds. So steps of
// one model do not have to wait for batches of another one at every turn.
constexpr int kStepTurns = 5;

// The runners of one worker, one of each kind that the model has.
struct WorkerRunners {
  std::unique_ptr<BatchRunner> batches;
  std::unique_ptr<StepRunner> steps;
};

// Deals the workers out, in turn, to the devices that have not failed: see EngineOptions. Those of
// several devices are made at the same time, since each tries its device's algorithms.
absl::StatusOr<std::vector<WorkerRunners>> DealOut(
    const models::Model& model, const EngineOptions& options,
    const std::function<absl::StatusOr<WorkerRunners>(int device)>& make) {
  const int num_devices = model.compiled().num_devices();
  const size_t instances =
      options.instances > 0 ? options.instances : DefaultInstances(model.compiled());
  std::vector<int> devices(num_devices);
  std::iota(devices.begin(), devices.end(), 0);
  std::vector<WorkerRunners> runners;
  absl::Status lost;
  // Each round makes one worker per device.
  for (size_t round = 0; round * num_devices < instances; ++round) {
    for (auto device = devices.begin(); device != devices.end() && runners.size() < instances;) {
      const size_t left = devices.end() - device;
      const int count = static_cast<int>(std::min(left, instances - runners.size()));
      std::vector<absl::StatusOr<WorkerRunners>> made(count);
      kernels::InParallel(count, [&](int i) { made[i] = make(device[i]); });
      for (absl::StatusOr<WorkerRunners>& worker : made) {
        if (worker.ok()) {
          runners.push_back(*std::move(worker));
          ++device;
        } else if (absl::IsUnavailable(worker.status())) {
          lost = worker.status();
          if (options.on_device_lost) options.on_device_lost(*device, lost);
          device = devices.erase(device);
        } else {
          return worker.status();
        }
      }
    }
  }
  if (runners.empty()) return lost;
  return runners;
}

absl::StatusOr<std::unique_ptr<Engine>> StartEngine(
    std::unique_ptr<EngineImpl> engine, const TaskRunners& task, std::vector<WorkerRunners> workers,
    BatchWorkers::LoopRunner loop_runner, const EngineOptions& options, BatchObserver* observer) {
  std::vector<std::unique_ptr<BatchRunner>> runners;
  std::vector<std::unique_ptr<StepRunner>> steppers;
  for (WorkerRunners& worker : workers) {
    if (worker.batches != nullptr) runners.push_back(std::move(worker.batches));
    if (worker.steps != nullptr) steppers.push_back(std::move(worker.steps));
  }
  if (runners.empty() && steppers.empty()) {
    return InvalidArgument("runners: expected at least one");
  }
  if (!runners.empty()) {
    SRU_RETURN_UNLESS_OK(
        engine->MakeBatches(std::move(runners), std::move(loop_runner), options, observer));
  }
  if (!steppers.empty()) {
    SRU_RETURN_UNLESS_OK(engine->MakeSteps(std::move(steppers), task, options));
  }
  SRU_RETURN_UNLESS_OK(engine->Start());
  return engine;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const models::Model> model,
                                                       const TaskRunners& task,
                                                       const EngineOptions& options,
                                                       const Clock* clock,
                                                       BatchObserver* observer) {
  if (options.instances < 0 || options.instances > kMaxInstances) {
    return InvalidArgument("instances: expected 0 (automatic) to ", kMaxInstances, ", found ",
                           options.instances);
  }
  // Checked before the workspaces are sized by them.
  if (auto checked = Batcher::Create(options.batcher, clock); !checked.ok()) {
    return checked.status();
  }
  std::shared_ptr<const StateArenas> arenas;
  if (task.keeps_states) {
    SRU_ASSIGN_OR_RETURN(arenas, MakeStateArenas(*model, options.state_budgets));
  }
  const PrefixCaches prefixes =
      MakePrefixCaches(*model, task, options.prefix_cache_bytes, arenas.get());
  const auto place_on = [&](int device, int max_tokens) -> absl::StatusOr<RunnerPlace> {
    RunnerPlace place;
    place.limits.max_tokens = max_tokens;
    // Each sequence has at least one token.
    place.limits.max_sequences = std::min(options.batcher.max_batch_sequences, max_tokens);
    place.limits.states = model->is_unidirectional();
    place.limits.turn = absl::ToChronoMicroseconds(options.compute_turn);
    place.limits.device = device;
    if (arenas != nullptr) {
      SRU_ASSIGN_OR_RETURN(place.arena, arenas->arena(device));
    }
    if (!prefixes.empty()) place.prefixes = prefixes[device];
    return place;
  };
  const auto make = [&](int device) -> absl::StatusOr<WorkerRunners> {
    SRU_ASSIGN_OR_RETURN(RunnerPlace place, place_on(device, options.batcher.max_batch_tokens));
    WorkerRunners worker;
    if (task.make_batch_runner != nullptr) {
      SRU_ASSIGN_OR_RETURN(worker.batches, task.make_batch_runner(*model, place));
    }
    if (task.make_step_runner != nullptr) {
      place.limits.turn *= kStepTurns;
      place.limits.max_tokens = MaxStepTokens(*model, task, options);
      SRU_ASSIGN_OR_RETURN(worker.steps, task.make_step_runner(*model, place));
    }
    return worker;
  };
  SRU_ASSIGN_OR_RETURN(std::vector<WorkerRunners> workers, DealOut(*model, options, make));
  BatchWorkers::LoopRunner loop_runner;
  if (task.make_batch_runner != nullptr && IsOnCpu(*model)) {
    SRU_ASSIGN_OR_RETURN(
        const RunnerPlace place,
        place_on(/*device=*/0, std::min(options.batcher.max_batch_tokens, kLoopTokens)));
    SRU_ASSIGN_OR_RETURN(loop_runner.runner, task.make_batch_runner(*model, place));
    loop_runner.most = {place.limits.max_tokens, place.limits.max_sequences};
  }
  return StartEngine(
      std::make_unique<EngineImpl>(std::move(model), std::move(arenas), prefixes, options, clock),
      task, std::move(workers), std::move(loop_runner), options, observer);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::CreateWithRunners(
    std::vector<std::unique_ptr<BatchRunner>> runners, const EngineOptions& options,
    const Clock* clock, BatchObserver* observer) {
  std::vector<WorkerRunners> workers(runners.size());
  for (size_t i = 0; i < runners.size(); ++i) workers[i].batches = std::move(runners[i]);
  return StartEngine(std::make_unique<EngineImpl>(nullptr, nullptr, PrefixCaches(), options, clock),
                     TaskRunners(), std::move(workers), BatchWorkers::LoopRunner(), options,
                     observer);
}

}  // namespace sru::server::batching
