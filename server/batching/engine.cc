#include "server/batching/engine.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/in_parallel.h"
#include "server/base/cores.h"
#include "server/batching/batch_workers.h"
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
  EngineImpl(std::shared_ptr<const models::Model> model,
             std::shared_ptr<const StateArenas> state_arenas, PrefixCaches prefixes,
             const EngineOptions& options, const Clock* clock)
      : model_(std::move(model)),
        state_arenas_(std::move(state_arenas)),
        prefixes_(std::move(prefixes)),
        clock_(clock),
        on_device_lost_(options.on_device_lost) {}

  ~EngineImpl() override {
    // First: their workers may report a device.
    if (steps_ != nullptr) steps_->Stop();
    if (batches_ != nullptr) batches_->Stop();
    if (no_batches_ == nullptr) return;
    no_batches_->Close();
    no_batches_->Abort(absl::FailedPreconditionError("task: the model takes no batches"));
  }

  // One of these or both, before Start().
  absl::Status MakeBatches(std::vector<std::unique_ptr<BatchRunner>> runners,
                           const EngineOptions& options, BatchObserver* observer) {
    auto made = BatchWorkers::Create(std::move(runners), WorkersOptionsOf(options), options.batcher,
                                     clock_, observer);
    if (!made.ok()) return made.status();
    batches_ = *std::move(made);
    return absl::OkStatus();
  }
  absl::Status MakeSteps(std::vector<std::unique_ptr<StepRunner>> runners,
                         const EngineOptions& options) {
    return model_->translator() != nullptr ? MakeTranslations(std::move(runners), options)
                                           : MakeGenerator(std::move(runners), options);
  }

  // Starts the workers and waits until all have warmed up. After an error nothing is served.
  absl::Status Start() {
    for (Workers* const workers :
         {static_cast<Workers*>(batches_.get()), static_cast<Workers*>(steps_)}) {
      if (workers == nullptr) continue;
      if (absl::Status status = workers->Start(); !status.ok()) return status;
    }
    if (instances() > 0) return absl::OkStatus();
    return absl::UnavailableError("every device failed while the generator warmed up");
  }

  const std::shared_ptr<const models::Model>& model() const override { return model_; }
  Batcher& batcher() override { return batches_ != nullptr ? batches_->batcher() : *no_batches_; }
  BatcherStats queue_stats() override {
    if (translations_ == nullptr) return batcher().stats();
    const TranslationStats translations = translations_->stats();
    BatcherStats stats;
    stats.queued_sequences = translations.waiting;
    stats.queued_tokens = translations.waiting_tokens;
    stats.rejected = translations.rejected;
    stats.expired = translations.expired;
    stats.cancelled = translations.cancelled;
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
  Generator* generator() override { return generator_.get(); }
  Translations* translations() override { return translations_.get(); }

  void TakeOutDevice(int device, const absl::Status& error) override {
    if (!first_workers().LoseDevice(device, error)) return;
    if (batches_ != nullptr && steps_ != nullptr) steps_->LoseDevice(device, error);
    if (on_device_lost_) on_device_lost_(device, error);
  }

  bool Drain(absl::Time deadline) override {
    batcher().Close();  // both drain together, not one after the other
    const bool steps = steps_ == nullptr || steps_->Drain(deadline);
    const bool batches = batches_ == nullptr || batches_->Drain(deadline);
    return steps && batches;
  }

 private:
  // Where every device of the model has workers.
  Workers& first_workers() const {
    return batches_ != nullptr ? static_cast<Workers&>(*batches_) : *steps_;
  }

  std::string Name() const {
    if (model_ == nullptr) return "engine";
    return absl::StrCat("model ", model_->name(), " version ", model_->version());
  }

  WorkersOptions WorkersOptionsOf(const EngineOptions& options) {
    WorkersOptions workers;
    workers.name = Name();
    workers.pin_cores = options.pin_cores;
    workers.compute_turn = options.compute_turn;
    workers.on_device_lost = [this](int device, const absl::Status& error) {
      TakeOutDevice(device, error);
    };
    return workers;
  }

  void SetStepWorkers(const EngineOptions& options, StepWorkersOptions* steps) {
    static_cast<WorkersOptions&>(*steps) = WorkersOptionsOf(options);
    steps->num_devices = model_->compiled().num_devices();
    steps->scheduler.max_step_tokens = options.batcher.max_batch_tokens;
    steps->scheduler.max_step_sequences = options.batcher.max_batch_sequences;
    steps->scheduler.max_waiting_rows = options.batcher.max_queue_tokens;
    steps->scheduler.admission_by_deadline = options.batcher.admission_by_deadline;
    steps->scheduler.ageing_interval = options.batcher.ageing_interval;
  }

  absl::Status MakeTranslations(std::vector<std::unique_ptr<StepRunner>> runners,
                                const EngineOptions& options) {
    const models::Translator& model = *model_->translator();
    const models::TranslatorConfig& config = model_->config().translator;
    ModelTranslationsOptions translations;
    SetStepWorkers(options, &translations);
    translations.scheduler.max_waiting_sequences = options.batcher.max_queue_sequences;
    translations.model.bos_id = config.bos_id;
    translations.model.eos_id = config.eos_id;
    translations.model.max_candidates = model.max_candidates;
    translations.source_vocabulary = config.source_vocabulary;
    translations.target_vocabulary = config.target_vocabulary;
    translations.max_positions = config.max_positions;
    auto made = ModelTranslations::Create(std::move(runners), translations, clock_,
                                          options.translate_observer);
    if (!made.ok()) return made.status();
    translations_ = *std::move(made);
    steps_ = &translations_->workers();
    auto no_batches = Batcher::Create(options.batcher, clock_);
    if (!no_batches.ok()) return no_batches.status();
    no_batches_ = *std::move(no_batches);
    return absl::OkStatus();
  }

  absl::Status MakeGenerator(std::vector<std::unique_ptr<StepRunner>> runners,
                             const EngineOptions& options) {
    const models::LanguageModel& model = *model_->language_model();
    LanguageModelGeneratorOptions generator;
    SetStepWorkers(options, &generator);
    generator.scheduler.max_streams = options.max_streams;
    if (model_->tokenizer() != nullptr) {
      generator.model.detokenizer = model_->tokenizer()->detokenizer();
    }
    generator.model.state_codec = &model_->state_codec();
    generator.vocabulary_size = model.program.inputs[model.ids].limit;
    auto made = LanguageModelGenerator::Create(std::move(runners), generator, clock_,
                                               options.generate_observer);
    if (!made.ok()) return made.status();
    generator_ = *std::move(made);
    steps_ = &generator_->workers();
    return absl::OkStatus();
  }

  const std::shared_ptr<const models::Model> model_;
  const std::shared_ptr<const StateArenas> state_arenas_;  // may be null
  const PrefixCaches prefixes_;
  const Clock* const clock_;
  const std::function<void(int, const absl::Status&)> on_device_lost_;

  // Constant once started, and thread-safe by themselves. Null where the model has none.
  std::unique_ptr<BatchWorkers> batches_;
  std::unique_ptr<Batcher> no_batches_;  // in place of batches_, without workers
  std::unique_ptr<LanguageModelGenerator> generator_;
  std::unique_ptr<ModelTranslations> translations_;
  StepWorkers* steps_ = nullptr;  // of one of these two
};

int DefaultInstances(const kernels::CompiledModel& compiled) {
  if (const int per_device = compiled.workers_per_device(); per_device > 0) {
    return per_device * compiled.num_devices();
  }
  return NumCores();
}

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
    case models::Task::kTranslator:  // takes no batches
      break;
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

absl::StatusOr<std::unique_ptr<StepRunner>> MakeStepper(const models::Model& model,
                                                        kernels::WorkspaceLimits limits,
                                                        const StateArenas* state_arenas,
                                                        const PrefixCaches& prefixes) {
  auto arena = state_arenas->arena(limits.device);
  if (!arena.ok()) return arena.status();
  limits.turn *= kStepTurns;
  if (model.translator() != nullptr) {
    return TranslatorStepper::Create(model.program(), *model.translator(), limits,
                                     *std::move(arena));
  }
  return LanguageModelStepper::Create(model.program(), *model.language_model(), limits,
                                      *std::move(arena), CacheOf(prefixes, limits.device));
}

// Deals the workers out, in turn, to the devices that have not failed: see EngineOptions. Those of
// several devices are made at the same time, since each tries its device's algorithms.
template <typename Runner>
absl::StatusOr<std::vector<std::unique_ptr<Runner>>> DealOut(
    const models::Model& model, const EngineOptions& options,
    const std::function<absl::StatusOr<std::unique_ptr<Runner>>(int device)>& make) {
  const int num_devices = model.compiled().num_devices();
  const size_t instances =
      options.instances > 0 ? options.instances : DefaultInstances(model.compiled());
  std::vector<int> devices(num_devices);
  std::iota(devices.begin(), devices.end(), 0);
  std::vector<std::unique_ptr<Runner>> runners;
  absl::Status lost;
  // Each round makes one worker per device.
  for (size_t round = 0; round * num_devices < instances; ++round) {
    for (auto device = devices.begin(); device != devices.end() && runners.size() < instances;) {
      const size_t left = devices.end() - device;
      const int count = static_cast<int>(std::min(left, instances - runners.size()));
      std::vector<absl::StatusOr<std::unique_ptr<Runner>>> made(count);
      kernels::InParallel(count, [&](int i) { made[i] = make(device[i]); });
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
    std::unique_ptr<EngineImpl> engine, std::vector<std::unique_ptr<BatchRunner>> runners,
    std::vector<std::unique_ptr<StepRunner>> steppers, const EngineOptions& options,
    BatchObserver* observer) {
  if (runners.empty() && steppers.empty()) {
    return absl::InvalidArgumentError("runners: expected at least one");
  }
  absl::Status status;
  if (!runners.empty()) status = engine->MakeBatches(std::move(runners), options, observer);
  if (status.ok() && !steppers.empty()) status = engine->MakeSteps(std::move(steppers), options);
  if (status.ok()) status = engine->Start();
  if (!status.ok()) return status;
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
  const StateArenas* const arenas = state_arenas->get();
  const auto limits_on = [limits](int device) {
    kernels::WorkspaceLimits on = limits;
    on.device = device;
    return on;
  };
  const auto make_stepper = [&](int device) {
    return MakeStepper(*model, limits_on(device), arenas, prefixes);
  };
  std::vector<std::unique_ptr<BatchRunner>> runners;
  std::vector<std::unique_ptr<StepRunner>> steppers;
  if (model->translator() != nullptr) {
    auto made = DealOut<StepRunner>(*model, options, make_stepper);
    if (!made.ok()) return made.status();
    steppers = *std::move(made);
  } else {
    auto made = DealOut<BatchRunner>(*model, options, [&](int device) {
      return MakeRunner(*model, limits_on(device), arenas, prefixes);
    });
    if (!made.ok()) return made.status();
    runners = *std::move(made);
  }
  // A language model's workers of both kinds are on the same devices. A device that has failed meanwhile
  // is taken out by the workers that take batches.
  for (size_t i = 0; model->language_model() != nullptr && i < runners.size(); ++i) {
    auto stepper = make_stepper(runners[i]->device());
    if (absl::IsUnavailable(stepper.status())) continue;
    if (!stepper.ok()) return stepper.status();
    steppers.push_back(*std::move(stepper));
  }
  return StartEngine(std::make_unique<EngineImpl>(std::move(model), *std::move(state_arenas),
                                                  prefixes, options, clock),
                     std::move(runners), std::move(steppers), options, observer);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::CreateWithRunners(
    std::shared_ptr<const models::Model> model, std::vector<std::unique_ptr<BatchRunner>> runners,
    const EngineOptions& options, const Clock* clock, BatchObserver* observer) {
  return StartEngine(
      std::make_unique<EngineImpl>(std::move(model), nullptr, PrefixCaches(), options, clock),
      std::move(runners), {}, options, observer);
}

}  // namespace sru::server::batching
