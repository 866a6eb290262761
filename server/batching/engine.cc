#include "server/batching/engine.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "kernels/in_parallel.h"
#include "server/batching/batch_source.h"
#include "server/batching/step_source.h"

namespace sru::server::batching {
namespace {

constexpr int kMaxInstances = 1024;
// After this much work at a time, a worker looks for work that has to go first, or yields its core
// to other threads. No flag: longer turns delay other callers and shorter ones cost throughput, on
// every machine.
constexpr std::chrono::microseconds kComputeTurn{200};
// The largest batch that interrupts others of its model while all its runners are busy.
constexpr int kNestedTokens = 256;

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

// The runner of batches and the runner of steps that a model makes for each worker. Null where the
// model takes no batches, or has no steps.
struct Runners {
  std::unique_ptr<BatchRunner> batches;
  std::unique_ptr<StepRunner> steps;

  int device() const { return batches != nullptr ? batches->device() : steps->device(); }
  absl::Status WarmUp() {
    if (batches != nullptr) SRU_RETURN_UNLESS_OK(batches->WarmUp());
    return steps == nullptr ? absl::OkStatus() : steps->WarmUp();
  }
};

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
        pool_(*options.pool),
        on_device_lost_(options.on_device_lost) {}

  ~EngineImpl() override {
    // First: workers that compute for them may report a device.
    if (steps_ != nullptr) steps_->Stop();
    if (batches_ != nullptr) batches_->Stop();
  }

  // Warms up and serves. After an error nothing is served.
  absl::Status Start(std::vector<Runners> all, std::unique_ptr<Batcher> batcher,
                     BatchSource::NestedRunner nested, const TaskRunners& task,
                     const EngineOptions& options, ComputeObserver* observer) {
    if (all.empty()) return InvalidArgument("runners: expected at least one");
    std::vector<absl::Status> warm(all.size());
    kernels::InParallel(static_cast<int>(all.size()), [&](int i) {
      if (i == 0 && nested.runner != nullptr) warm[i] = nested.runner->WarmUp();
      warm[i].Update(all[i].WarmUp());
    });
    absl::Status lost;
    for (const absl::Status& status : warm) {
      if (!status.ok() && !absl::IsUnavailable(status)) return status;
      lost.Update(status);
    }
    std::vector<int> lost_devices;
    std::vector<std::unique_ptr<BatchRunner>> runners;
    std::vector<std::unique_ptr<StepRunner>> steppers;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!warm[i].ok()) lost_devices.push_back(all[i].device());
      if (all[i].batches != nullptr) runners.push_back(std::move(all[i].batches));
      if (all[i].steps != nullptr) steppers.push_back(std::move(all[i].steps));
    }
    if (!runners.empty()) {
      batches_ =
          std::make_unique<BatchSource>(std::move(runners), std::move(batcher), SourceOptionsOf(),
                                        &pool_, clock_, observer, std::move(nested));
    }
    if (!steppers.empty()) {
      SRU_RETURN_UNLESS_OK(MakeSteps(std::move(steppers), task, options, observer));
    }
    for (const int device : lost_devices) TakeOutDevice(device, lost);
    if (instances() == 0) return lost;
    if (batches_ != nullptr) batches_->Start();
    if (steps_ != nullptr) steps_->Start();
    return absl::OkStatus();
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
  int instances() const override { return first_source().in_service(); }
  std::optional<StateArenas::Stats> state_stats() const override {
    if (state_arenas_ == nullptr) return std::nullopt;
    return state_arenas_->stats();
  }
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
    if (!first_source().LoseDevice(device, error)) return;
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
  // Every source has runners on all devices of the model, so this one knows all that are lost.
  WorkSource& first_source() const {
    return batches_ != nullptr ? static_cast<WorkSource&>(*batches_) : *steps_;
  }

  WorkSourceOptions SourceOptionsOf() {
    WorkSourceOptions source;
    if (model_ != nullptr) {
      source.name = absl::StrCat(model_->name(), " version ", model_->version());
    }
    source.model = this;
    source.times_threads = model_ != nullptr && IsOnCpu(*model_);
    source.on_device_lost = [this](int device, const absl::Status& error) {
      TakeOutDevice(device, error);
    };
    return source;
  }

  absl::Status MakeSteps(std::vector<std::unique_ptr<StepRunner>> runners, const TaskRunners& task,
                         const EngineOptions& options, ComputeObserver* observer) {
    SchedulerOptions scheduler;
    scheduler.workers = PlacesOf(runners, pool_.num_devices());
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
      scheduler.max_begun_branches =
          int64_t{*std::max_element(scheduler.workers.begin(), scheduler.workers.end())} *
          scheduler.max_step_sequences;
      scheduler.max_waiting_sequences = options.batcher.max_queue_sequences;
      scheduler.max_streams = std::numeric_limits<int>::max();
    } else {
      scheduler.max_streams = options.max_streams;
    }
    SRU_ASSIGN_OR_RETURN(std::unique_ptr<SequenceScheduler> made,
                         SequenceScheduler::Create(scheduler, clock_));
    steps_ = std::make_unique<StepSource>(std::move(runners), std::move(made),
                                          absl::UnavailableError(task.drained), SourceOptionsOf(),
                                          &pool_, clock_, observer);
    return absl::OkStatus();
  }

  const std::shared_ptr<const models::Model> model_;       // null in tests
  const std::shared_ptr<const StateArenas> state_arenas_;  // may be null
  const PrefixCaches prefixes_;
  const Clock* const clock_;
  WorkerPool& pool_;
  const std::function<void(int, const absl::Status&)> on_device_lost_;

  // Constant once started, and thread-safe by themselves. Null where the model has none.
  std::unique_ptr<BatchSource> batches_;
  std::unique_ptr<StepSource> steps_;
};

// How many batches may run at a time on all devices.
size_t MostInstances(const EngineOptions& options) {
  int workers = 0;
  for (int i = 0; i < options.pool->num_devices(); ++i) workers += options.pool->workers(i);
  return options.instances > 0 ? std::min(options.instances, workers) : workers;
}

// How many turns of a batch (kComputeTurn) a step computes before it yields its
// core or is interrupted. All sequences of a step wait for it, hundreds of times each, and a thread
// that yields may be given its core back only after every other thread has had a slice of
// milliseconds.
constexpr int kStepTurns = 5;

// Deals the runners out, in turn, to the devices that have not failed: see EngineOptions. Those of
// several devices are made at the same time, since each tries its device's algorithms.
absl::StatusOr<std::vector<Runners>> DealOut(
    const models::Model& model, const EngineOptions& options,
    const std::function<absl::StatusOr<Runners>(int device)>& make) {
  const int num_devices = model.compiled().num_devices();
  const size_t instances = MostInstances(options);
  std::vector<int> devices(num_devices);
  std::iota(devices.begin(), devices.end(), 0);
  std::vector<Runners> all;
  absl::Status lost;
  // Each round makes those of one batch and step per device.
  for (size_t round = 0; round * num_devices < instances; ++round) {
    for (auto device = devices.begin(); device != devices.end() && all.size() < instances;) {
      const size_t left = devices.end() - device;
      const int count = static_cast<int>(std::min(left, instances - all.size()));
      std::vector<absl::StatusOr<Runners>> made(count);
      kernels::InParallel(count, [&](int i) { made[i] = make(device[i]); });
      for (absl::StatusOr<Runners>& runners : made) {
        if (runners.ok()) {
          all.push_back(*std::move(runners));
          ++device;
        } else if (absl::IsUnavailable(runners.status())) {
          lost = runners.status();
          if (options.on_device_lost) options.on_device_lost(*device, lost);
          device = devices.erase(device);
        } else {
          return runners.status();
        }
      }
    }
  }
  if (all.empty()) return lost;
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const models::Model> model,
                                                       const TaskRunners& task,
                                                       const EngineOptions& options,
                                                       const Clock* clock,
                                                       ComputeObserver* observer) {
  if (options.instances < 0 || options.instances > kMaxInstances) {
    return InvalidArgument("instances: expected 0 (automatic) to ", kMaxInstances, ", found ",
                           options.instances);
  }
  // Checked before the workspaces are sized by them.
  SRU_ASSIGN_OR_RETURN(std::unique_ptr<Batcher> batcher, Batcher::Create(options.batcher, clock));
  std::shared_ptr<const StateArenas> arenas;
  if (task.keeps_states) {
    SRU_ASSIGN_OR_RETURN(arenas, StateArenas::Create(model->program(), options.state_budgets));
  }
  const PrefixCaches prefixes =
      MakePrefixCaches(*model, task, options.prefix_cache_bytes, arenas.get());
  const auto place_on = [&](int device, int max_tokens) -> absl::StatusOr<RunnerPlace> {
    RunnerPlace place;
    place.limits.max_tokens = max_tokens;
    // Each sequence has at least one token.
    place.limits.max_sequences = std::min(options.batcher.max_batch_sequences, max_tokens);
    place.limits.states = model->is_unidirectional();
    place.limits.turn = kComputeTurn;
    place.limits.device = device;
    if (arenas != nullptr) {
      SRU_ASSIGN_OR_RETURN(place.arena, arenas->arena(device));
    }
    if (!prefixes.empty()) place.prefixes = prefixes[device];
    return place;
  };
  const auto make = [&](int device) -> absl::StatusOr<Runners> {
    SRU_ASSIGN_OR_RETURN(RunnerPlace place, place_on(device, options.batcher.max_batch_tokens));
    Runners runners;
    if (task.make_batch_runner != nullptr) {
      SRU_ASSIGN_OR_RETURN(runners.batches, task.make_batch_runner(*model, place));
    }
    if (task.make_step_runner != nullptr) {
      place.limits.turn *= kStepTurns;
      place.limits.max_tokens = MaxStepTokens(*model, task, options);
      SRU_ASSIGN_OR_RETURN(runners.steps, task.make_step_runner(*model, place));
    }
    return runners;
  };
  SRU_ASSIGN_OR_RETURN(std::vector<Runners> runners, DealOut(*model, options, make));
  BatchSource::NestedRunner nested;
  if (task.make_batch_runner != nullptr && IsOnCpu(*model)) {
    SRU_ASSIGN_OR_RETURN(
        const RunnerPlace place,
        place_on(/*device=*/0, std::min(options.batcher.max_batch_tokens, kNestedTokens)));
    SRU_ASSIGN_OR_RETURN(nested.runner, task.make_batch_runner(*model, place));
    nested.most = {place.limits.max_tokens, place.limits.max_sequences};
  }
  auto engine =
      std::make_unique<EngineImpl>(std::move(model), std::move(arenas), prefixes, options, clock);
  SRU_RETURN_UNLESS_OK(engine->Start(std::move(runners), std::move(batcher), std::move(nested),
                                     task, options, observer));
  return engine;
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::CreateWithRunners(
    std::vector<std::unique_ptr<BatchRunner>> runners, const EngineOptions& options,
    const Clock* clock, ComputeObserver* observer) {
  SRU_ASSIGN_OR_RETURN(std::unique_ptr<Batcher> batcher, Batcher::Create(options.batcher, clock));
  std::vector<Runners> all(runners.size());
  for (size_t i = 0; i < runners.size(); ++i) all[i].batches = std::move(runners[i]);
  auto engine = std::make_unique<EngineImpl>(nullptr, nullptr, PrefixCaches(), options, clock);
  SRU_RETURN_UNLESS_OK(engine->Start(std::move(all), std::move(batcher),
                                     BatchSource::NestedRunner(), TaskRunners(), options,
                                     observer));
  return engine;
}

}  // namespace sru::server::batching
