// What the tests of the engine share: the workers, an observer that keeps what each batch was, and
// a call that may be waited for. The last two are thread-safe.
#ifndef SRU_TESTS_TESTING_ENGINE_CALL_H_
#define SRU_TESTS_TESTING_ENGINE_CALL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "server/batching/engine.h"

namespace sru::server::batching {

// Gives an engine workers, and 256 MiB for the states of sequences on each device if the options
// have no budgets. `workers`: [device].
inline std::unique_ptr<WorkerPool> MakePool(std::vector<int> workers, const Clock* clock,
                                            EngineOptions* options, bool interrupts = false) {
  WorkerPoolOptions pool;
  pool.workers = std::move(workers);
  pool.interrupts = interrupts;
  for (size_t i = options->state_budgets.size(); i < pool.workers.size(); ++i) {
    options->state_budgets.push_back(std::make_shared<kernels::ArenaBudget>(size_t{256} << 20));
  }
  auto made = std::make_unique<WorkerPool>(std::move(pool), clock);
  options->pool = made.get();
  return made;
}

// "sequences/tokens code" of each batch.
class EngineObserver : public ComputeObserver {
 public:
  void OnBatch(int num_sequences, int num_tokens, absl::Duration compute,
               const absl::Status& status) override {
    EXPECT_GE(compute, absl::ZeroDuration());
    MutexLock lock(&mutex_);
    batches_.push_back(
        absl::StrCat(num_sequences, "/", num_tokens, " ", absl::StatusCodeToString(status.code())));
  }
  std::vector<std::string> batches() {
    MutexLock lock(&mutex_);
    return batches_;
  }

 private:
  Mutex mutex_;
  std::vector<std::string> batches_ ABSL_GUARDED_BY(mutex_);
};

// One call, which fails the test when it is answered twice.
class EngineCall {
 public:
  absl::Status Submit(Engine& engine, BatchRequest request) {
    return Submit(engine.batcher(), std::move(request));
  }
  absl::Status Submit(Batcher& batcher, BatchRequest request) {
    request.done = [this](const absl::Status& status, const RequestTimes& times) {
      MutexLock lock(&mutex_);
      EXPECT_FALSE(done_) << "answered twice";
      done_ = true;
      status_ = status;
      times_ = times;
      changed_.SignalAll();
    };
    auto handle = batcher.Submit(std::move(request));
    if (handle.ok()) handle_ = *handle;
    return handle.status();
  }
  const RequestHandle& handle() const { return handle_; }
  absl::Status Wait() {
    MutexLock lock(&mutex_);
    while (!done_) changed_.Wait(&mutex_);
    return status_;
  }
  bool done() {
    MutexLock lock(&mutex_);
    return done_;
  }
  RequestTimes times() {
    MutexLock lock(&mutex_);
    return times_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  RequestTimes times_ ABSL_GUARDED_BY(mutex_);
  RequestHandle handle_;
};

}  // namespace sru::server::batching

#endif  // SRU_TESTS_TESTING_ENGINE_CALL_H_
