#include "server/engine.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "server/core_pool.h"
#include "server/kernel_batch_runner.h"
#include "server/log.h"
#include "server/mutex.h"

namespace sru::server {
namespace {

constexpr int kMaxInstances = 1024;
constexpr int kInstancesPerGpu = 2;  // one computes while the other copies and answers

class EngineImpl : public Engine {
 public:
  EngineImpl(std::shared_ptr<const models::Model> model, std::unique_ptr<Batcher> batcher,
             std::vector<std::unique_ptr<BatchRunner>> runners, bool pin_cores, const Clock* clock,
             BatchObserver* observer)
      : model_(std::move(model)),
        clock_(clock),
        observer_(observer),
        runners_(std::move(runners)),
        cores_(AcquireCores(pin_cores ? runners_.size() : 0)),
        batcher_(std::move(batcher)) {}

  ~EngineImpl() override {
    batcher_->Close();
    for (std::thread& thread : threads_) thread.join();
    for (int core : cores_) ProcessCorePool().Release(core);
  }

  // Starts the workers and waits until all are warm. On an error nothing is served.
  absl::Status Start() {
    {
      MutexLock lock(&mutex_);
      cold_workers_ = live_workers_ = instances();
    }
    threads_.reserve(runners_.size());
    for (size_t i = 0; i < runners_.size(); ++i) {
      threads_.emplace_back([this, i] {
        if (!cores_.empty()) Pin(cores_[i]);
        Work(*runners_[i]);
      });
    }
    if (!cores_.empty()) {
      LogInfo(absl::StrCat(Name(), ": workers pinned to cores ", absl::StrJoin(cores_, ", ")));
    }
    MutexLock lock(&mutex_);
    while (cold_workers_ > 0) changed_.Wait(&mutex_);
    return warm_up_status_;
  }

  const std::shared_ptr<const models::Model>& model() const override { return model_; }
  Batcher& batcher() override { return *batcher_; }
  int instances() const override { return static_cast<int>(runners_.size()); }

  bool Drain(absl::Time deadline) override {
    batcher_->Close();
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
    return finished;
  }

 private:
  // Empty when the system does not say which cores there are.
  static std::vector<int> AcquireCores(size_t workers) {
    std::vector<int> cores;
    for (size_t i = 0; i < workers; ++i) {
      const int core = ProcessCorePool().Acquire();
      if (core >= 0) cores.push_back(core);
    }
    return cores;
  }

  // Before the worker warms up: memory that it touches first is then near its core.
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
  void Work(BatchRunner& runner) {
    const absl::Status status = runner.WarmUp();
    {
      MutexLock lock(&mutex_);
      warm_up_status_.Update(status);
      --cold_workers_;
      changed_.SignalAll();
    }
    // Returns null once the batcher is closed and empty, and only then.
    while (std::unique_ptr<Batch> batch = batcher_->TakeBatch()) {
      RunBatch(runner, std::move(batch));
    }
    MutexLock lock(&mutex_);
    --live_workers_;
    changed_.SignalAll();
  }

  void RunBatch(BatchRunner& runner, std::unique_ptr<Batch> batch) {
    const std::vector<const SequenceTask*>& sequences = batch->sequences();
    const absl::Time start = clock_->Now();
    const absl::Status status = runner.Run(sequences);
    absl::Status shared = status;  // what the batch ends with, but for single failures
    if (absl::IsInvalidArgument(status) && sequences.size() > 1) {
      shared = RunOneByOne(runner, *batch);
    }
    const absl::Duration compute = clock_->Now() - start;
    // Before the answers, so that who has one finds its batch counted.
    if (observer_ != nullptr) {
      observer_->OnBatch(static_cast<int>(sequences.size()), batch->num_tokens(), compute, status);
    }
    batcher_->Finish(std::move(batch), shared, compute);
  }

  // OK, with the bad sequences marked in the batch.
  static absl::Status RunOneByOne(BatchRunner& runner, Batch& batch) {
    std::vector<const SequenceTask*> single(1);
    for (size_t i = 0; i < batch.sequences().size(); ++i) {
      single[0] = batch.sequences()[i];
      if (absl::Status status = runner.Run(single); !status.ok()) batch.Fail(i, status);
    }
    return absl::OkStatus();
  }

  // Constant once started.
  const std::shared_ptr<const models::Model> model_;
  const Clock* const clock_;
  BatchObserver* const observer_;
  const std::vector<std::unique_ptr<BatchRunner>> runners_;
  const std::vector<int> cores_;  // [worker], or empty: not pinned
  std::vector<std::thread> threads_;

  // Thread-safe by itself.
  const std::unique_ptr<Batcher> batcher_;

  Mutex mutex_;
  CondVar changed_;  // one of the two numbers below
  int cold_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  int live_workers_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status warm_up_status_ ABSL_GUARDED_BY(mutex_);
};

int DefaultInstances(const models::Model& model) {
  if (model.backend_name() == "cuda") return kInstancesPerGpu;
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
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
  // Before the workspaces are sized by them.
  if (auto checked = Batcher::Create(options.batcher, clock); !checked.ok()) {
    return checked.status();
  }
  kernels::WorkspaceLimits limits;
  limits.max_tokens = options.batcher.max_batch_tokens;
  // Each sequence has a token.
  limits.max_sequences =
      std::min(options.batcher.max_batch_sequences, options.batcher.max_batch_tokens);
  const int instances = options.instances > 0 ? options.instances : DefaultInstances(*model);
  std::vector<std::unique_ptr<BatchRunner>> runners;
  for (int i = 0; i < instances; ++i) {
    auto runner = KernelBatchRunner::Create(model->executable(), model->spec(), limits);
    if (!runner.ok()) return runner.status();
    runners.push_back(*std::move(runner));
  }
  return CreateWithRunners(std::move(model), std::move(runners), options, clock, observer);
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::CreateWithRunners(
    std::shared_ptr<const models::Model> model, std::vector<std::unique_ptr<BatchRunner>> runners,
    const EngineOptions& options, const Clock* clock, BatchObserver* observer) {
  if (runners.empty()) return absl::InvalidArgumentError("runners: expected at least one");
  BatcherOptions batcher_options = options.batcher;
  batcher_options.num_workers = static_cast<int>(runners.size());
  auto batcher = Batcher::Create(batcher_options, clock);
  if (!batcher.ok()) return batcher.status();
  auto engine =
      std::make_unique<EngineImpl>(std::move(model), *std::move(batcher), std::move(runners),
                                   options.pin_cores, clock, observer);
  if (absl::Status status = engine->Start(); !status.ok()) return status;
  return engine;
}

}  // namespace sru::server
