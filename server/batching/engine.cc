#include "server/batching/engine.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/mutex.h"
#include "kernels/in_parallel.h"
#include "kernels/turn.h"
#include "server/base/cores.h"
#include "server/base/log.h"
#include "server/batching/core_pool.h"
#include "server/batching/kernel_batch_runner.h"
#include "server/batching/language_model_generator.h"
#include "server/batching/language_model_stepper.h"
#include "server/batching/model_translations.h"
#include "server/batching/reader_batch_runner.h"
#include "server/batching/score_batch_runner.h"
#include "server/batching/translator_stepper.h"

namespace sru::server::batching {
namespace {

constexpr int kMaxInstances = 1024;
constexpr int kMaxRuns = 2;  // of one batch: see engine.h

// A runner that works for one thread at a time. Its own worker lets a batch that is run again go
// first, so that such a batch does not wait behind a whole queue.
class RunnerSlot {
 public:
  explicit RunnerSlot(std::unique_ptr<BatchRunner> runner) : runner_(std::move(runner)) {}

  int device() const { return runner_->device(); }
  // Set before the batcher is told, which makes the worker leave.
  std::atomic<bool>& out_of_service() { return out_of_service_; }

  absl::Status WarmUp() { return runner_->WarmUp(); }

  // Waits for the runner and calls `run` with it. `again`: the batch has run before.
  template <typename Run>
  absl::Status Use(bool again, const Run& run) {
    {
      MutexLock lock(&mutex_);
      if (again) ++waiting_again_;
      while (busy_ || (!again && waiting_again_ > 0)) freed_.Wait(&mutex_);
      if (again) --waiting_again_;
      busy_ = true;
    }
    absl::Status status = run(*runner_);
    {
      MutexLock lock(&mutex_);
      busy_ = false;
    }
    freed_.SignalAll();
    return status;
  }

  // How many batches a batch that is to be run again would have to wait for.
  int load() {
    MutexLock lock(&mutex_);
    return waiting_again_ + (busy_ ? 1 : 0);
  }

 private:
  // Run by the thread that set busy_; warmed up before there are batches.
  const std::unique_ptr<BatchRunner> runner_;
  std::atomic<bool> out_of_service_{false};
  Mutex mutex_;
  CondVar freed_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  int waiting_again_ ABSL_GUARDED_BY(mutex_) = 0;
};

// [device]: that of its arena, or null if it had failed already; empty if no prefixes are kept.
using PrefixCaches = std::vector<std::shared_ptr<PrefixCache>>;

PrefixCaches MakePrefixCaches(const models::Model& model, const EngineOptions& options,
                              const StateArenas* state_arenas) {
  PrefixCaches caches;
  if (options.prefix_cache_bytes == 0 || model.language_model() == nullptr) return caches;
  for (int device = 0; device < model.compiled().num_devices(); ++device) {
    auto arena = state_arenas->arena(device);
    caches.push_back(!arena.ok() ? nullptr
                                 : std::make_shared<PrefixCache>(
                                       *std::move(arena),
                                       BytesOfState(model.language_model()->program.fields),
                                       options.prefix_cache_bytes));
  }
  return caches;
}

std::shared_ptr<PrefixCache> CacheOf(const PrefixCaches& caches, int device) {
  return caches.empty() ? nullptr : caches[device];
}

class EngineImpl : public Engine {
 public:
  EngineImpl(std::shared_ptr<const models::Model> model, std::unique_ptr<Batcher> batcher,
             std::shared_ptr<const StateArenas> state_arenas, PrefixCaches prefixes,
             std::vector<std::unique_ptr<BatchRunner>> runners, const EngineOptions& options,
             const Clock* clock, BatchObserver* observer)
      : model_(std::move(model)),
        state_arenas_(std::move(state_arenas)),
        prefixes_(std::move(prefixes)),
        clock_(clock),
        observer_(observer),
        on_device_lost_(options.on_device_lost),
        compute_turn_(absl::ToChronoMicroseconds(options.compute_turn)),
        cores_(AcquireCores(options.pin_cores ? runners.size() : 0)),
        batcher_(std::move(batcher)) {
    for (std::unique_ptr<BatchRunner>& runner : runners) {
      slots_.push_back(std::make_unique<RunnerSlot>(std::move(runner)));
    }
    in_service_ = static_cast<int>(slots_.size());
  }

  ~EngineImpl() override {
    // Their workers may report a device.
    if (generator_ != nullptr) generator_->Stop();
    if (translations_ != nullptr) translations_->Stop();
    batcher_->Close();
    for (std::thread& thread : threads_) thread.join();
    for (int core : cores_) ProcessCorePool().Release(core);
  }

  // Starts the workers and waits until all have warmed up. After an error nothing is served.
  absl::Status Start() {
    {
      MutexLock lock(&mutex_);
      cold_workers_ = live_workers_ = static_cast<int>(slots_.size());
    }
    threads_.reserve(slots_.size());
    for (size_t i = 0; i < slots_.size(); ++i) {
      threads_.emplace_back([this, i] {
        if (!cores_.empty()) Pin(cores_[i]);
        Work(*slots_[i]);
      });
    }
    if (!cores_.empty()) {
      LogInfo(absl::StrCat(Name(), ": workers pinned to cores ", absl::StrJoin(cores_, ", ")));
    }
    {
      MutexLock lock(&mutex_);
      while (cold_workers_ > 0) changed_.Wait(&mutex_);
      if (instances() == 0) return lost_status_;
      if (!warm_up_status_.ok()) return warm_up_status_;
    }
    absl::Status status;
    if (generator_ != nullptr) status = generator_->Start();
    if (translations_ != nullptr) status = translations_->Start();
    if (!status.ok() || instances() > 0) return status;
    return absl::UnavailableError("every device failed while the generator warmed up");
  }

  // Before Start().
  absl::Status MakeTranslations(std::vector<std::unique_ptr<StepRunner>> runners,
                                const EngineOptions& options) {
    const models::Translator& model = *model_->translator();
    const models::TranslatorConfig& config = model_->config().translator;
    ModelTranslationsOptions translations;
    translations.name = Name();
    translations.model.bos_id = config.bos_id;
    translations.model.eos_id = config.eos_id;
    translations.model.max_candidates = model.max_candidates;
    translations.source_vocabulary = config.source_vocabulary;
    translations.target_vocabulary = config.target_vocabulary;
    translations.max_positions = config.max_positions;
    translations.num_devices = model_->compiled().num_devices();
    translations.pin_cores = options.pin_cores;
    translations.compute_turn = options.compute_turn;
    translations.on_device_lost = [this](int device, const absl::Status& error) {
      TakeOutDevice(device, error);
    };
    translations.scheduler = SchedulerOptionsOf(options);
    translations.scheduler.max_waiting_sequences = options.batcher.max_queue_sequences;
    auto made = ModelTranslations::Create(std::move(runners), translations, clock_,
                                          options.translate_observer);
    if (!made.ok()) return made.status();
    translations_ = *std::move(made);
    return absl::OkStatus();
  }

  // Before Start().
  absl::Status MakeGenerator(std::vector<std::unique_ptr<StepRunner>> runners,
                             const EngineOptions& options) {
    const models::LanguageModel& model = *model_->language_model();
    LanguageModelGeneratorOptions generator;
    generator.name = Name();
    if (model_->tokenizer() != nullptr) {
      generator.model.detokenizer = model_->tokenizer()->detokenizer();
    }
    generator.model.state_codec = &model_->state_codec();
    generator.vocabulary_size = model.program.inputs[model.ids].limit;
    generator.num_devices = model_->compiled().num_devices();
    generator.pin_cores = options.pin_cores;
    generator.compute_turn = options.compute_turn;
    generator.on_device_lost = [this](int device, const absl::Status& error) {
      TakeOutDevice(device, error);
    };
    generator.scheduler = SchedulerOptionsOf(options);
    generator.scheduler.max_streams = options.max_streams;
    auto made = LanguageModelGenerator::Create(std::move(runners), generator, clock_,
                                               options.generate_observer);
    if (!made.ok()) return made.status();
    generator_ = *std::move(made);
    return absl::OkStatus();
  }

  const std::shared_ptr<const models::Model>& model() const override { return model_; }
  Batcher& batcher() override { return *batcher_; }
  int instances() const override { return in_service_.load(); }
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
  Generator* generator() override { return generator_.get(); }
  Translations* translations() override { return translations_.get(); }

  void TakeOutDevice(int device, const absl::Status& error) override {
    {
      // The batcher is told under the lock, so that it hears of two lost devices in order.
      MutexLock lock(&mutex_);
      int left = 0;
      bool found = false;
      for (const std::unique_ptr<RunnerSlot>& slot : slots_) {
        if (slot->device() == device && !slot->out_of_service().exchange(true)) found = true;
        if (!slot->out_of_service().load()) ++left;
      }
      if (!found) return;
      in_service_ = left;
      if (left > 0) batcher_->SetNumWorkers(left);
    }
    if (generator_ != nullptr) generator_->LoseDevice(device, error);
    if (translations_ != nullptr) translations_->LoseDevice(device, error);
    // Answers the waiting requests, hence not under the lock. A second caller finds an empty queue.
    if (instances() == 0) {
      batcher_->Stop(absl::UnavailableError(absl::StrCat(
          "every device that served this model has failed, the last with: ", error.message())));
    }
    if (on_device_lost_) on_device_lost_(device, error);
  }

  bool Drain(absl::Time deadline) override {
    batcher_->Close();
    // Together, not one after the other.
    const bool generated = (generator_ == nullptr || generator_->Drain(deadline)) &&
                           (translations_ == nullptr || translations_->Drain(deadline));
    bool finished;
    {
      MutexLock lock(&mutex_);
      for (absl::Time now = clock_->Now(); live_workers_ > 0 && now < deadline;
           now = clock_->Now()) {
        changed_.WaitFor(&mutex_, deadline - now);
      }
      finished = live_workers_ == 0;
    }
    if (!finished) {
      batcher_->Abort(absl::UnavailableError(
          "the server is shutting down and ran out of time before this request was computed"));
    }
    return finished && generated;
  }

 private:
  static SchedulerOptions SchedulerOptionsOf(const EngineOptions& options) {
    SchedulerOptions scheduler;
    scheduler.max_step_tokens = options.batcher.max_batch_tokens;
    scheduler.max_step_sequences = options.batcher.max_batch_sequences;
    scheduler.max_waiting_rows = options.batcher.max_queue_tokens;
    scheduler.admission_by_deadline = options.batcher.admission_by_deadline;
    scheduler.ageing_interval = options.batcher.ageing_interval;
    return scheduler;
  }

  // Empty when the system does not say which cores there are.
  static std::vector<int> AcquireCores(size_t workers) {
    std::vector<int> cores;
    for (size_t i = 0; i < workers; ++i) {
      const int core = ProcessCorePool().Acquire();
      if (core >= 0) cores.push_back(core);
    }
    return cores;
  }

  // Called before the worker warms up, so that memory which it touches first is near its core.
  void Pin(int core) const {
    if (absl::Status status = PinThisThread(core); !status.ok()) {
      LogWarning(absl::StrCat(Name(), ": --pin_cores: ", status.message()));
    }
  }

  std::string Name() const {
    if (model_ == nullptr) return "engine";
    return absl::StrCat("model ", model_->name(), " version ", model_->version());
  }

  // A worker's life.
  void Work(RunnerSlot& slot) {
    const absl::Status status = slot.WarmUp();
    const bool lost = absl::IsUnavailable(status);
    if (lost) TakeOutDevice(slot.device(), status);
    {
      MutexLock lock(&mutex_);
      (lost ? lost_status_ : warm_up_status_).Update(status);
      --cold_workers_;
      changed_.SignalAll();
    }
    // Returns null once the batcher is closed and empty, or this worker is out of service.
    kernels::Turn turn(compute_turn_);
    while (std::unique_ptr<Batch> batch = batcher_->TakeBatch(&slot.out_of_service())) {
      turn.Start();
      RunBatch(slot, std::move(batch));
      turn.MayEnd();
    }
    MutexLock lock(&mutex_);
    --live_workers_;
    changed_.SignalAll();
  }

  void RunBatch(RunnerSlot& slot, std::unique_ptr<Batch> batch) {
    const absl::Time start = clock_->Now();
    Outcome outcome;
    int runs = 0;
    for (RunnerSlot* on = &slot; on != nullptr && runs < kMaxRuns; on = LeastLoadedSlot()) {
      outcome = RunOn(*on, *batch, /*again=*/on != &slot);
      if (outcome.ran) ++runs;
      if (!absl::IsUnavailable(outcome.shared)) break;
      TakeOutDevice(on->device(), outcome.shared);
    }
    for (const auto& [index, failure] : outcome.failures) batch->Fail(index, failure);
    const absl::Duration compute = clock_->Now() - start;
    // Reported before the answers, so that a client that has its answer finds the batch in the
    // metrics.
    if (observer_ != nullptr) {
      observer_->OnBatch(static_cast<int>(batch->sequences().size()), batch->num_tokens(), compute,
                         outcome.batch);
    }
    batcher_->Finish(std::move(batch), outcome.shared, compute);
  }

  // The least loaded of the workers in service; null when there is none.
  RunnerSlot* LeastLoadedSlot() {
    RunnerSlot* best = nullptr;
    int least = 0;
    for (const std::unique_ptr<RunnerSlot>& slot : slots_) {
      if (slot->out_of_service().load()) continue;
      const int load = slot->load();
      if (best == nullptr || load < least) {
        best = slot.get();
        least = load;
      }
    }
    return best;
  }

  struct Outcome {
    bool ran = false;
    absl::Status batch;   // the run of the batch as a whole
    absl::Status shared;  // what its requests end with, except for `failures`
    std::vector<std::pair<size_t, absl::Status>> failures;  // of sequences, by index
  };

  static Outcome RunOn(RunnerSlot& slot, const Batch& batch, bool again) {
    Outcome outcome;
    outcome.shared = slot.Use(again, [&](BatchRunner& runner) -> absl::Status {
      // It may have failed since the slot was chosen.
      if (slot.out_of_service().load()) {
        return absl::UnavailableError(
            absl::StrCat("device ", slot.device(), " has failed and is out of service"));
      }
      outcome.ran = true;
      outcome.batch = runner.Run(batch.sequences());
      return RunAgain(runner, batch.sequences(), 0, batch.sequences().size(), outcome.batch,
                      &outcome.failures);
    });
    if (!outcome.shared.ok()) {
      outcome.batch = outcome.shared;
      outcome.failures.clear();
    }
    return outcome;
  }

  // What the sequences from `begin` to `end` come to, which together have ended with `status`: runs
  // them in smaller parts where that may help. Returns OK and the sequences that failed by
  // themselves, or what ends all of them; kUnavailable also when the device is lost meanwhile.
  static absl::Status RunAgain(BatchRunner& runner, const std::vector<const SequenceTask*>& all,
                               size_t begin, size_t end, const absl::Status& status,
                               std::vector<std::pair<size_t, absl::Status>>* failures) {
    const size_t count = end - begin;
    const bool is_too_large = absl::IsResourceExhausted(status);
    if (count == 1 || (!is_too_large && !absl::IsInvalidArgument(status))) return status;
    const size_t step = is_too_large ? (count + 1) / 2 : 1;
    std::vector<const SequenceTask*> part;
    for (size_t i = begin; i < end; i += step) {
      const size_t part_end = std::min(i + step, end);
      part.assign(all.begin() + i, all.begin() + part_end);
      const absl::Status ended = RunAgain(runner, all, i, part_end, runner.Run(part), failures);
      if (absl::IsUnavailable(ended)) return ended;
      if (ended.ok()) continue;
      for (size_t failed = i; failed < part_end; ++failed) failures->emplace_back(failed, ended);
    }
    return absl::OkStatus();
  }

  // Constant once started.
  const std::shared_ptr<const models::Model> model_;
  const std::shared_ptr<const StateArenas> state_arenas_;  // may be null
  const PrefixCaches prefixes_;
  const Clock* const clock_;
  BatchObserver* const observer_;
  const std::function<void(int, const absl::Status&)> on_device_lost_;
  const std::chrono::microseconds compute_turn_;
  const std::vector<int> cores_;  // [worker], or empty: not pinned
  std::vector<std::unique_ptr<RunnerSlot>> slots_;
  std::vector<std::thread> threads_;

  // Both are thread-safe by themselves.
  const std::unique_ptr<Batcher> batcher_;
  // Constant once started; may be null.
  std::unique_ptr<LanguageModelGenerator> generator_;
  std::unique_ptr<ModelTranslations> translations_;
  std::atomic<int> in_service_{0};  // workers; written under mutex_

  Mutex mutex_;
  CondVar changed_;  // signalled when one of the two counts below changes
  int cold_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  int live_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status warm_up_status_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_status_ ABSL_GUARDED_BY(mutex_);  // of devices that failed while warming up
};

int DefaultInstances(const kernels::CompiledModel& compiled) {
  if (const int per_device = compiled.workers_per_device(); per_device > 0) {
    return per_device * compiled.num_devices();
  }
  return NumCores();
}

// Of a model that computes in steps only, whose batcher gets no requests.
class IdleRunner : public BatchRunner {
 public:
  explicit IdleRunner(int device) : device_(device) {}
  int device() const override { return device_; }
  absl::Status WarmUp() override { return absl::OkStatus(); }
  absl::Status Run(const std::vector<const SequenceTask*>& /*sequences*/) override {
    return absl::FailedPreconditionError("task: the model takes no batches");
  }

 private:
  const int device_;
};

constexpr size_t kDefaultStateBytes = size_t{256} << 20;

// Null for a model that keeps no states.
absl::StatusOr<std::shared_ptr<const StateArenas>> MakeStateArenas(const models::Model& model,
                                                                   StateBudgets budgets) {
  switch (model.task()) {
    case models::Task::kClassifier:
    case models::Task::kEncoder:
    case models::Task::kReader:
      return nullptr;
    case models::Task::kLanguageModel:
    case models::Task::kTranslator:
      break;
  }
  if (budgets.empty()) {
    for (int i = 0; i < model.program().num_devices(); ++i) {
      budgets.push_back(std::make_shared<kernels::ArenaBudget>(kDefaultStateBytes));
    }
  }
  return StateArenas::Create(model.program(), budgets);
}

// A runner of the kind that the model's task needs.
absl::StatusOr<std::unique_ptr<BatchRunner>> MakeRunner(const models::Model& model,
                                                        const kernels::WorkspaceLimits& limits,
                                                        const StateArenas* state_arenas,
                                                        const PrefixCaches& prefixes) {
  switch (model.task()) {
    case models::Task::kClassifier:
    case models::Task::kEncoder:
      return KernelBatchRunner::Create(model.executable(), model.spec(), limits);
    case models::Task::kLanguageModel: {
      absl::StatusOr<std::shared_ptr<kernels::StateArena>> arena =
          state_arenas->arena(limits.device);
      if (!arena.ok()) return arena.status();
      return ScoreBatchRunner::Create(model.program(), *model.language_model(), limits,
                                      *std::move(arena), CacheOf(prefixes, limits.device));
    }
    case models::Task::kTranslator: {
      absl::StatusOr<std::shared_ptr<kernels::StateArena>> arena =
          state_arenas->arena(limits.device);
      if (!arena.ok()) return arena.status();
      return std::make_unique<IdleRunner>(limits.device);
    }
    case models::Task::kReader:
      return ReaderBatchRunner::Create(model.program(), *model.reader(), limits);
  }
  return absl::InternalError("task: no runner");
}

// How many turns of a batch (EngineOptions::compute_turn) a step computes before it yields its core. All
// sequences of a step wait for it, hundreds of times each, and a thread that yields may be given its core
// back only after every other thread has had a slice of milliseconds. So steps of one model do not have to
// wait for batches of another one at every turn.
constexpr int kStepTurns = 5;

// One for each worker of the batcher, on the same device. None for a model that takes no steps.
absl::StatusOr<std::vector<std::unique_ptr<StepRunner>>> MakeSteppers(
    const models::Model& model, kernels::WorkspaceLimits limits,
    const std::vector<std::unique_ptr<BatchRunner>>& runners, const StateArenas* state_arenas,
    const PrefixCaches& prefixes) {
  std::vector<std::unique_ptr<StepRunner>> steppers;
  absl::Status lost;
  if (model.language_model() == nullptr && model.translator() == nullptr) return steppers;
  limits.turn *= kStepTurns;
  for (const std::unique_ptr<BatchRunner>& runner : runners) {
    limits.device = runner->device();
    auto arena = state_arenas->arena(limits.device);
    if (!arena.ok()) return arena.status();
    absl::StatusOr<std::unique_ptr<StepRunner>> stepper;
    if (model.translator() != nullptr) {
      stepper = TranslatorStepper::Create(model.program(), *model.translator(), limits,
                                          *std::move(arena));
    } else {
      stepper = LanguageModelStepper::Create(model.program(), *model.language_model(), limits,
                                             *std::move(arena), CacheOf(prefixes, limits.device));
    }
    // A device that has failed meanwhile is taken out by the batcher's workers, or not used.
    if (absl::IsUnavailable(stepper.status())) {
      lost = stepper.status();
      continue;
    }
    if (!stepper.ok()) return stepper.status();
    steppers.push_back(*std::move(stepper));
  }
  if (steppers.empty() && model.translator() != nullptr) return lost;
  return steppers;
}

// Deals the workers out, in turn, to the devices that have not failed: see EngineOptions. Those of
// several devices are made at the same time, since each tries its device's algorithms.
absl::StatusOr<std::vector<std::unique_ptr<BatchRunner>>> MakeRunners(
    const models::Model& model, const kernels::WorkspaceLimits& limits,
    const EngineOptions& options, const StateArenas* state_arenas, const PrefixCaches& prefixes) {
  const int num_devices = model.compiled().num_devices();
  const size_t instances =
      options.instances > 0 ? options.instances : DefaultInstances(model.compiled());
  std::vector<int> devices(num_devices);
  std::iota(devices.begin(), devices.end(), 0);
  std::vector<std::unique_ptr<BatchRunner>> runners;
  absl::Status lost;
  // Each round makes one worker per device.
  for (size_t round = 0; round * num_devices < instances; ++round) {
    for (auto device = devices.begin(); device != devices.end() && runners.size() < instances;) {
      const size_t left = devices.end() - device;
      const int count = static_cast<int>(std::min(left, instances - runners.size()));
      std::vector<absl::StatusOr<std::unique_ptr<BatchRunner>>> made(count);
      kernels::InParallel(count, [&](int i) {
        kernels::WorkspaceLimits of_device = limits;
        of_device.device = device[i];
        made[i] = MakeRunner(model, of_device, state_arenas, prefixes);
      });
      for (auto& runner : made) {
        if (runner.ok()) {
          runners.push_back(*std::move(runner));
          ++device;
        } else if (absl::IsUnavailable(runner.status())) {
          lost = runner.status();
          if (options.on_device_lost) options.on_device_lost(*device, lost);
          device = devices.erase(device);
        } else {
          return runner.status();
        }
      }
    }
  }
  if (runners.empty()) return lost;
  return runners;
}

absl::StatusOr<std::unique_ptr<Engine>> StartEngine(
    std::shared_ptr<const models::Model> model, std::shared_ptr<const StateArenas> state_arenas,
    std::vector<std::unique_ptr<BatchRunner>> runners,
    std::vector<std::unique_ptr<StepRunner>> steppers, PrefixCaches prefixes,
    const EngineOptions& options, const Clock* clock, BatchObserver* observer) {
  if (runners.empty()) return absl::InvalidArgumentError("runners: expected at least one");
  BatcherOptions batcher_options = options.batcher;
  batcher_options.num_workers = static_cast<int>(runners.size());
  auto batcher = Batcher::Create(batcher_options, clock);
  if (!batcher.ok()) return batcher.status();
  auto engine = std::make_unique<EngineImpl>(std::move(model), *std::move(batcher),
                                             std::move(state_arenas), std::move(prefixes),
                                             std::move(runners), options, clock, observer);
  if (!steppers.empty()) {
    absl::Status status = engine->model()->translator() != nullptr
                              ? engine->MakeTranslations(std::move(steppers), options)
                              : engine->MakeGenerator(std::move(steppers), options);
    if (!status.ok()) return status;
  }
  if (absl::Status status = engine->Start(); !status.ok()) return status;
  return engine;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> Engine::Create(std::shared_ptr<const models::Model> model,
                                                       const EngineOptions& options,
                                                       const Clock* clock,
                                                       BatchObserver* observer) {
  if (options.instances < 0 || options.instances > kMaxInstances) {
    return absl::InvalidArgumentError(absl::StrCat("instances: expected 0 (automatic) to ",
                                                   kMaxInstances, ", found ", options.instances));
  }
  // Checked before the workspaces are sized by them.
  if (auto checked = Batcher::Create(options.batcher, clock); !checked.ok()) {
    return checked.status();
  }
  kernels::WorkspaceLimits limits;
  limits.max_tokens = options.batcher.max_batch_tokens;
  // Each sequence has at least one token.
  limits.max_sequences =
      std::min(options.batcher.max_batch_sequences, options.batcher.max_batch_tokens);
  limits.states = model->is_unidirectional();
  limits.turn = absl::ToChronoMicroseconds(options.compute_turn);
  auto state_arenas = MakeStateArenas(*model, options.state_budgets);
  if (!state_arenas.ok()) return state_arenas.status();
  const PrefixCaches prefixes = MakePrefixCaches(*model, options, state_arenas->get());
  auto runners = MakeRunners(*model, limits, options, state_arenas->get(), prefixes);
  if (!runners.ok()) return runners.status();
  auto steppers = MakeSteppers(*model, limits, *runners, state_arenas->get(), prefixes);
  if (!steppers.ok()) return steppers.status();
  return StartEngine(std::move(model), *std::move(state_arenas), *std::move(runners),
                     *std::move(steppers), prefixes, options, clock, observer);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::CreateWithRunners(
    std::shared_ptr<const models::Model> model, std::vector<std::unique_ptr<BatchRunner>> runners,
    const EngineOptions& options, const Clock* clock, BatchObserver* observer) {
  return StartEngine(std::move(model), nullptr, std::move(runners), {}, {}, options, clock,
                     observer);
}

}  // namespace sru::server::batching
