// The engine with puppet runners and real threads, and with the bundled model. Nothing sleeps: a
// puppet runner computes when the test lets it.
#include "server/batching/engine.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "kernels/turn.h"
#include "models/model.h"
#include "server/base/retry.h"
#include "server/base/turn_work.h"
#include "server/batching/batch_runner.h"
#include "server/batching/batch_source.h"
#include "server/batching/worker_pool.h"
#include "server/tasks/score/score_batch_runner.h"
#include "server/tasks/stacks/stack_batch_runner.h"
#include "server/tasks/tasks.h"
#include "tests/testing/engine_call.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/poll.h"
#include "tests/testing/puppet_engine.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Shared by all runners of a test: a gate, and a record of what they ran.
class Script {
 public:
  // While the gate is closed, runners wait.
  void CloseGate() {
    MutexLock lock(&mutex_);
    open_ = false;
  }
  void OpenGate() {
    MutexLock lock(&mutex_);
    open_ = true;
    changed_.SignalAll();
  }
  void AwaitRunning(int count) {
    MutexLock lock(&mutex_);
    while (running_ < count) changed_.Wait(&mutex_);
  }

  absl::Status Run(const std::vector<const SequenceTask*>& sequences) {
    MutexLock lock(&mutex_);
    most_running_ = std::max(most_running_, ++running_);
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mutex_);
    --running_;
    if (clock_ != nullptr) clock_->Advance(absl::Microseconds(10));
    threads_.insert(std::this_thread::get_id());
    sizes_.push_back(static_cast<int>(sequences.size()));
    for (const SequenceTask* sequence : sequences) {
      if (TaskOf(sequence).token_ids[0] == kPoison) return absl::InvalidArgumentError("poison");
      if (TaskOf(sequence).token_ids[0] == kBreaks) return absl::InternalError("broken");
      if (TaskOf(sequence).token_ids[0] == kNeverFits)
        return absl::ResourceExhaustedError("no room");
    }
    if (sequences.size() > most_sequences_) return absl::ResourceExhaustedError("no room");
    for (const SequenceTask* sequence : sequences) {
      if (TaskOf(sequence).result != nullptr) {
        *TaskOf(sequence).result = static_cast<float>(TaskOf(sequence).token_ids[0]);
      }
    }
    return absl::OkStatus();
  }

  std::vector<int> sizes() {
    MutexLock lock(&mutex_);
    return sizes_;
  }
  size_t num_threads() {
    MutexLock lock(&mutex_);
    return threads_.size();
  }

  // The most runs that were going on at the same time.
  int most_running() {
    MutexLock lock(&mutex_);
    return most_running_;
  }

  static constexpr int32_t kPoison = 666;
  static constexpr int32_t kBreaks = 667;
  static constexpr int32_t kNeverFits = 668;

  // Each batch takes 10 us by this clock.
  void Moves(FakeClock* clock) { clock_ = clock; }

  // Larger batches do not fit.
  void SetMostSequences(size_t most) {
    MutexLock lock(&mutex_);
    most_sequences_ = most;
  }

  std::atomic<int> warm_ups{0};
  absl::Status warm_up_status;

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_) = true;
  int running_ ABSL_GUARDED_BY(mutex_) = 0;
  int most_running_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<int> sizes_ ABSL_GUARDED_BY(mutex_);
  size_t most_sequences_ ABSL_GUARDED_BY(mutex_) = std::numeric_limits<size_t>::max();
  FakeClock* clock_ = nullptr;
  std::set<std::thread::id> threads_ ABSL_GUARDED_BY(mutex_);
};

class PuppetRunner : public BatchRunner {
 public:
  explicit PuppetRunner(Script* script) : script_(*script) {}
  absl::Status WarmUp() override {
    script_.warm_ups.fetch_add(1);
    return script_.warm_up_status;
  }
  absl::Status Run(const std::vector<const SequenceTask*>& sequences) override {
    return script_.Run(sequences);
  }

 private:
  Script& script_;
};

// Does what a loop would do on a thread of its own, whose work for the end of the turn is in
// `list`.
template <typename Work>
void OnLoop(const Work& work) {
  std::thread([&work] {
    TurnWorkList list;
    list.SetForThisThread();
    work(list);
  }).join();
}

class EngineTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Engine>> Create(int workers) {
    std::vector<std::unique_ptr<BatchRunner>> runners;
    for (int i = 0; i < workers; ++i) runners.push_back(std::make_unique<PuppetRunner>(&script_));
    EngineOptions options = options_;
    if (options.pool == nullptr) pools_.push_back(MakePool({workers}, clock_, &options));
    return Engine::CreateWithRunners(std::move(runners), options, clock_, &observer_);
  }
  // Runs take the time of a clock on which a busy machine has no influence.
  void MeasureByFakeClock() {
    script_.Moves(&fake_clock_);
    clock_ = &fake_clock_;
  }
  void Start(int workers) { engine_ = Create(workers).value(); }
  void MustSubmit(EngineCall* call, BatchRequest request) {
    const absl::Status status = call->Submit(*engine_, std::move(request));
    ASSERT_TRUE(status.ok()) << status;
  }
  // The only worker runs this call until the gate opens, while others gather.
  void Hold(EngineCall* call) {
    script_.CloseGate();
    if (engine_ == nullptr) Start(1);
    MustSubmit(call, MakeRequest(1, {1}));
    script_.AwaitRunning(1);
  }
  // So that the speed is known.
  void RunOne() {
    EngineCall call;
    MustSubmit(&call, MakeRequest(1, {5}));
    EXPECT_TRUE(call.Wait().ok());
    if (options_.pool == nullptr) return;
    // The worker looks for more before it is idle again.
    EXPECT_TRUE(sru::testing::PollUntil([this] { return options_.pool->has_idle_worker(0); }));
  }

  EngineOptions options_;
  RealClock real_clock_;
  FakeClock fake_clock_;
  const Clock* clock_ = &real_clock_;
  Script script_;
  EngineObserver observer_;
  std::vector<std::unique_ptr<WorkerPool>> pools_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, WarmsUpEveryWorkerThenServes) {
  Start(3);
  EXPECT_EQ(engine_->instances(), 3);
  EXPECT_EQ(script_.warm_ups.load(), 3);
  float result = 0;
  BatchRequest request = MakeRequest(7, {5}, &result);
  EngineCall call;
  ASSERT_TRUE(call.Submit(*engine_, std::move(request)).ok());
  EXPECT_TRUE(call.Wait().ok());
  EXPECT_EQ(result, 7);
  EXPECT_GE(call.times().queue, absl::ZeroDuration());
  EXPECT_GE(call.times().compute, absl::ZeroDuration());
  // It was counted before it was answered.
  EXPECT_THAT(observer_.batches(), ElementsAre("1/5 OK"));
}

TEST_F(EngineTest, AFailedWarmUpIsAnErrorOfCreate) {
  script_.warm_up_status = absl::UnavailableError("no device");
  EXPECT_EQ(Create(2).status(), absl::UnavailableError("no device"));
}

TEST_F(EngineTest, NeedsARunnerAndValidOptions) {
  EXPECT_EQ(Create(0).status().code(), absl::StatusCode::kInvalidArgument);
  options_.batcher.max_batch_tokens = 0;
  const absl::Status status = Create(1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("max_batch_tokens"));
}

TEST_F(EngineTest, WorkersRunAtTheSameTime) {
  options_.batcher.max_batch_sequences = 1;
  script_.CloseGate();
  Start(2);
  EngineCall calls[4];
  for (EngineCall& call : calls) ASSERT_TRUE(call.Submit(*engine_, MakeRequest(1, {5})).ok());
  script_.AwaitRunning(2);
  EXPECT_EQ(engine_->batcher().stats().running_batches, 2);
  EXPECT_EQ(engine_->batcher().stats().queued_sequences, 2);
  script_.OpenGate();
  for (EngineCall& call : calls) EXPECT_TRUE(call.Wait().ok());
  EXPECT_EQ(script_.num_threads(), 2u);
}

TEST_F(EngineTest, ALoopComputesWhatIsShortByItself) {
  MeasureByFakeClock();
  WorkerPool pool(WorkerPoolOptions(), clock_);
  options_.pool = &pool;
  Start(1);
  RunOne();
  RunOne();  // by now the speed of the first one is known
  float results[2] = {};
  OnLoop([&](TurnWorkList& list) {
    EngineCall calls[2];
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(calls[i].Submit(*engine_, MakeRequest(7 + i, {5}, &results[i])).ok());
    }
    EXPECT_EQ(engine_->batcher().stats().queued_sequences, 2) << "no worker was woken";
    list.RunAll(/*in_time=*/true);
    EXPECT_TRUE(calls[0].done() && calls[1].done());
    EXPECT_TRUE(list.empty());
  });
  EXPECT_EQ(results[0] + results[1], 15);
  EXPECT_EQ(script_.num_threads(), 2U);
  EXPECT_THAT(observer_.batches(), ElementsAre("1/5 OK", "1/5 OK", "2/10 OK")) << "together";
  engine_.reset();  // before the pool
}

TEST_F(EngineTest, ALoopLeavesToAWorkerWhatItMayNotCompute) {
  MeasureByFakeClock();
  Start(1);
  OnLoop([&](TurnWorkList& list) {
    EngineCall unknown;
    ASSERT_TRUE(unknown.Submit(*engine_, MakeRequest(1, {5})).ok());
    list.RunAll(/*in_time=*/true);
    EXPECT_TRUE(unknown.Wait().ok()) << "nothing was measured yet";
    EngineCall late;
    ASSERT_TRUE(late.Submit(*engine_, MakeRequest(1, {5})).ok());
    list.RunAll(/*in_time=*/false);
    EXPECT_TRUE(late.Wait().ok());
    // The only runner is busy.
    script_.CloseGate();
    EngineCall calls[2];
    ASSERT_TRUE(calls[0].Submit(*engine_, MakeRequest(1, {5})).ok());
    list.RunAll(/*in_time=*/false);
    script_.AwaitRunning(1);
    ASSERT_TRUE(calls[1].Submit(*engine_, MakeRequest(1, {5})).ok());
    list.RunAll(/*in_time=*/true);
    EXPECT_FALSE(calls[1].done());
    script_.OpenGate();
    for (EngineCall& call : calls) EXPECT_TRUE(call.Wait().ok());
  });
  EXPECT_EQ(script_.num_threads(), 1U);
}

// Computes, turn after turn, until it is told to end.
class TurningRunner : public BatchRunner {
 public:
  absl::Status WarmUp() override { return absl::OkStatus(); }
  absl::Status Run(const std::vector<const SequenceTask*>& /*sequences*/) override {
    while (!ends.load()) {
      kernels::TurnEnd::OfThisThread()->OnTurnEnd();
      turns.fetch_add(1);
    }
    return absl::OkStatus();
  }
  // Whether a few turns have ended from now on.
  bool AwaitTurns() const {
    const int64_t before = turns.load();
    return sru::testing::PollUntil([&] { return turns.load() >= before + 3; });
  }

  std::atomic<int64_t> turns{0};
  std::atomic<bool> ends{false};
};

TEST_F(EngineTest, ABusyWorkerIsBroughtWhatALoopHasForIt) {
  WorkerPoolOptions pool_options;
  pool_options.interrupts = true;
  WorkerPool pool(pool_options, clock_);
  Script nested;
  std::vector<std::unique_ptr<BatchRunner>> runners;
  auto owned = std::make_unique<TurningRunner>();
  TurningRunner& runner = *owned;
  runners.push_back(std::move(owned));
  BatchSource source(std::move(runners), Batcher::Create(options_.batcher, clock_).value(),
                     WorkSourceOptions(), &pool, clock_, &observer_,
                     {std::make_unique<PuppetRunner>(&nested), {64, 64}});
  source.Start();
  const FlowHandle flows[] = {std::make_shared<Flow>("a"), std::make_shared<Flow>("b")};
  const auto submit = [&](EngineCall* call, int flow, int tokens) {
    BatchRequest request = MakeRequest(1, {tokens});
    request.flow = flows[flow];
    ASSERT_TRUE(call->Submit(source.batcher(), std::move(request)).ok());
  };
  EngineCall much;
  submit(&much, 0, 200);
  EXPECT_TRUE(runner.AwaitTurns());
  EngineCall own;
  submit(&own, 0, 5);
  EXPECT_TRUE(runner.AwaitTurns());
  EXPECT_FALSE(own.done()) << "nobody interrupts work of his own";
  source.batcher().Cancel(own.handle());
  EXPECT_TRUE(runner.AwaitTurns());  // nothing waits any more
  OnLoop([&](TurnWorkList& list) {
    EngineCall little;
    submit(&little, 1, 5);
    EXPECT_TRUE(runner.AwaitTurns());
    EXPECT_FALSE(little.done()) << "the worker has not been told";
    list.RunUrgent();
    EXPECT_TRUE(little.Wait().ok());
    EXPECT_FALSE(much.done());
    list.RunAll(/*in_time=*/false);
    EngineCall large;
    submit(&large, 1, 65);
    list.RunUrgent();
    EXPECT_TRUE(runner.AwaitTurns());
    EXPECT_FALSE(large.done()) << "more than the runner for interruptions takes";
    runner.ends = true;
    list.RunAll(/*in_time=*/true);
    EXPECT_TRUE(large.Wait().ok());
  });
  EXPECT_TRUE(much.Wait().ok());
  EXPECT_THAT(nested.sizes(), ElementsAre(1));
}

TEST_F(EngineTest, WhatCameBeforeTheStartIsComputedAfterIt) {
  WorkerPool pool(WorkerPoolOptions(), clock_);
  std::vector<std::unique_ptr<BatchRunner>> runners;
  runners.push_back(std::make_unique<PuppetRunner>(&script_));
  BatchSource source(std::move(runners), Batcher::Create(options_.batcher, clock_).value(),
                     WorkSourceOptions(), &pool, clock_, &observer_);
  EngineCall call;
  ASSERT_TRUE(call.Submit(source.batcher(), MakeRequest(1, {5})).ok());
  EXPECT_FALSE(call.done());
  source.Start();
  EXPECT_TRUE(call.Wait().ok());
}

TEST_F(EngineTest, EnginesShareTheWorkersOfAPool) {
  options_.batcher.max_batch_sequences = 1;
  for (const int workers : {1, 2}) {
    WorkerPoolOptions pool_options;
    pool_options.workers = {workers};
    WorkerPool pool(pool_options, clock_);
    options_.pool = &pool;
    Script script;
    std::unique_ptr<Engine> engines[2];
    for (std::unique_ptr<Engine>& engine : engines) {
      std::vector<std::unique_ptr<BatchRunner>> runners;
      for (int i = 0; i < 2; ++i) runners.push_back(std::make_unique<PuppetRunner>(&script));
      engine = Engine::CreateWithRunners(std::move(runners), options_, clock_, &observer_).value();
    }
    script.CloseGate();
    std::vector<EngineCall> calls(40);
    for (size_t i = 0; i < calls.size(); ++i) {
      ASSERT_TRUE(calls[i].Submit(*engines[i % 2], MakeRequest(1, {5})).ok());
    }
    script.AwaitRunning(workers);
    EXPECT_FALSE(pool.has_idle_worker(/*device=*/0));
    script.OpenGate();
    for (EngineCall& call : calls) EXPECT_TRUE(call.Wait().ok());
    EXPECT_EQ(script.most_running(), workers);
    EXPECT_LE(script.num_threads(), static_cast<size_t>(workers));
    // One serves on when the other has gone.
    engines[0].reset();
    EngineCall more;
    ASSERT_TRUE(more.Submit(*engines[1], MakeRequest(1, {5})).ok());
    EXPECT_TRUE(more.Wait().ok());
  }
}

TEST_F(EngineTest, ALoopDoesNotComputeBesideABusyWorkerOfAnotherEngine) {
  MeasureByFakeClock();
  WorkerPool pool(WorkerPoolOptions(), clock_);
  options_.pool = &pool;
  auto other = Create(1);
  ASSERT_TRUE(other.ok());
  Start(2);
  RunOne();
  RunOne();  // by now the speed of the first one is known
  script_.CloseGate();
  EngineCall calls[3];
  ASSERT_TRUE(calls[0].Submit(**other, MakeRequest(1, {5})).ok());
  script_.AwaitRunning(1);
  ASSERT_TRUE(calls[1].Submit(*engine_, MakeRequest(2, {5})).ok());
  OnLoop([&](TurnWorkList& list) {
    ASSERT_TRUE(calls[2].Submit(*engine_, MakeRequest(3, {5})).ok());
    list.RunAll(/*in_time=*/true);
    EXPECT_EQ(script_.sizes().size(), 2U);
    EXPECT_EQ(engine_->batcher().stats().queued_sequences, 2);
  });
  script_.OpenGate();
  for (EngineCall& call : calls) EXPECT_TRUE(call.Wait().ok());
  EXPECT_EQ(script_.most_running(), 1);
  EXPECT_EQ(script_.num_threads(), 1U);
  engine_.reset();  // before the pool
}

TEST_F(EngineTest, AnEngineThatHasGoneLeavesNothingInThePool) {
  WorkerPool pool(WorkerPoolOptions(), clock_);
  options_.pool = &pool;
  Start(1);
  auto flow = std::make_shared<Flow>("a");
  const std::weak_ptr<Flow> caller = flow;
  {
    EngineCall call;
    BatchRequest request = MakeRequest(1, {5});
    request.flow = std::move(flow);
    ASSERT_TRUE(call.Submit(*engine_, std::move(request)).ok());
    EXPECT_TRUE(call.Wait().ok());
  }
  engine_.reset();
  EXPECT_TRUE(caller.expired());
}

TEST_F(EngineTest, ALoopMayComeLate) {
  Start(1);
  OnLoop([&](TurnWorkList& list) {
    EngineCall call;
    ASSERT_TRUE(call.Submit(*engine_, MakeRequest(1, {5})).ok());
    // A worker that looks for another one takes it, too.
    EngineCall other;
    std::thread([&] { ASSERT_TRUE(other.Submit(*engine_, MakeRequest(2, {5})).ok()); }).join();
    EXPECT_TRUE(call.Wait().ok());
    EXPECT_TRUE(other.Wait().ok());
    engine_ = nullptr;
    EXPECT_FALSE(list.empty());
    list.RunAll(/*in_time=*/true);
  });
}

TEST_F(EngineTest, APoisonInputFailsAlone) {
  EngineCall first;
  Hold(&first);
  constexpr int kGood = 1000;
  std::vector<EngineCall> calls(kGood + 1);
  std::vector<float> results(kGood + 1);
  for (int i = 0; i <= kGood; ++i) {
    BatchRequest request = MakeRequest(i == 321 ? Script::kPoison : 10000 + i, {1}, &results[i]);
    ASSERT_TRUE(calls[i].Submit(*engine_, std::move(request)).ok());
  }
  script_.OpenGate();
  for (int i = 0; i <= kGood; ++i) {
    if (i == 321) {
      EXPECT_EQ(calls[i].Wait(), absl::InvalidArgumentError("poison"));
    } else {
      EXPECT_TRUE(calls[i].Wait().ok());
      EXPECT_EQ(results[i], 10000 + i);
    }
  }
  // Only the batch with the bad request was run again, one by one.
  EXPECT_THAT(observer_.batches(), ElementsAre("1/1 OK", "256/256 OK", "256/256 INVALID_ARGUMENT",
                                               "256/256 OK", "233/233 OK"));
  EXPECT_EQ(script_.sizes().size(), 5u + 256u);
}

TEST_F(EngineTest, ABatchWithoutRoomIsRunInHalves) {
  script_.SetMostSequences(4);
  EngineCall first;
  Hold(&first);
  std::vector<EngineCall> calls(16);
  std::vector<float> results(16);
  for (int i = 0; i < 16; ++i) {
    BatchRequest request = MakeRequest(i == 6 ? Script::kNeverFits : 100 + i, {1}, &results[i]);
    ASSERT_TRUE(calls[i].Submit(*engine_, std::move(request)).ok());
  }
  script_.OpenGate();
  for (int i = 0; i < 16; ++i) {
    if (i == 6) {
      EXPECT_EQ(calls[i].Wait(),
                RetryAfter(absl::ResourceExhaustedError("no room"), kMemoryRetryAfter));
    } else {
      EXPECT_TRUE(calls[i].Wait().ok()) << i;
      EXPECT_EQ(results[i], 100 + i);
    }
  }
  EXPECT_THAT(script_.sizes(), ElementsAre(1, 16, 8, 4, 4, 2, 2, 1, 1, 8, 4, 4));
  EXPECT_THAT(observer_.batches(), ElementsAre("1/1 OK", "16/16 RESOURCE_EXHAUSTED"));
}

TEST_F(EngineTest, AnErrorFailsTheRequestsOfItsBatchOnly) {
  options_.batcher.max_batch_sequences = 2;
  EngineCall calls[5];
  Hold(&calls[0]);
  ASSERT_TRUE(calls[1].Submit(*engine_, MakeRequest(2, {1})).ok());
  ASSERT_TRUE(calls[2].Submit(*engine_, MakeRequest(Script::kBreaks, {1})).ok());
  ASSERT_TRUE(calls[3].Submit(*engine_, MakeRequest(3, {1})).ok());
  ASSERT_TRUE(calls[4].Submit(*engine_, MakeRequest(4, {1})).ok());
  script_.OpenGate();
  EXPECT_TRUE(calls[0].Wait().ok());
  EXPECT_EQ(calls[1].Wait(), absl::InternalError("broken"));
  EXPECT_EQ(calls[2].Wait(), absl::InternalError("broken"));
  EXPECT_TRUE(calls[3].Wait().ok());
  EXPECT_TRUE(calls[4].Wait().ok());
  EXPECT_THAT(script_.sizes(), ElementsAre(1, 2, 2));  // nothing was run again
}

TEST_F(EngineTest, DrainAnswersEverythingAccepted) {
  options_.batcher.max_batch_sequences = 1;
  script_.CloseGate();
  Start(1);
  std::vector<EngineCall> calls(20);
  for (EngineCall& call : calls) ASSERT_TRUE(call.Submit(*engine_, MakeRequest(1, {1})).ok());
  script_.AwaitRunning(1);
  std::thread drain([this] { EXPECT_TRUE(engine_->Drain(absl::InfiniteFuture())); });
  // The engine is closed from here on, but accepted requests still run.
  std::vector<std::unique_ptr<EngineCall>> more;
  absl::Status refused;
  do {
    auto call = std::make_unique<EngineCall>();
    refused = call->Submit(*engine_, MakeRequest(2, {1}));
    if (refused.ok()) more.push_back(std::move(call));
    std::this_thread::yield();
  } while (refused.ok() || absl::IsResourceExhausted(refused));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(calls[0].done());
  script_.OpenGate();
  drain.join();
  for (EngineCall& call : calls) {
    EXPECT_TRUE(call.done());
    EXPECT_TRUE(call.Wait().ok());
  }
  for (auto& call : more) EXPECT_TRUE(call->Wait().ok());
  EXPECT_TRUE(engine_->Drain(absl::Now()));  // again
}

TEST_F(EngineTest, DrainThatRunsOutOfTimeAnswersTheRest) {
  options_.batcher.max_batch_sequences = 1;
  EngineCall running;
  Hold(&running);
  EngineCall waiting;
  ASSERT_TRUE(waiting.Submit(*engine_, MakeRequest(1, {1})).ok());
  EXPECT_FALSE(engine_->Drain(absl::Now() + absl::Milliseconds(5)));
  EXPECT_TRUE(waiting.done());
  EXPECT_EQ(waiting.Wait().code(), absl::StatusCode::kUnavailable);
  EXPECT_FALSE(running.done());
  script_.OpenGate();
  EXPECT_TRUE(running.Wait().ok());
}

TEST_F(EngineTest, TheDestructorServesWhatWasAccepted) {
  Start(2);
  std::vector<EngineCall> calls(200);
  for (EngineCall& call : calls) ASSERT_TRUE(call.Submit(*engine_, MakeRequest(1, {1})).ok());
  engine_.reset();
  for (EngineCall& call : calls) {
    EXPECT_TRUE(call.done());
    EXPECT_TRUE(call.Wait().ok());
  }
}

// tasks::StackBatchRunner on a stack that only records what it is given
// ---------------------------------

class RecordingWorkspace : public kernels::Workspace {
 public:
  explicit RecordingWorkspace(const kernels::WorkspaceLimits& limits) : limits_(limits) {}
  const kernels::WorkspaceLimits& limits() const override { return limits_; }
  size_t bytes() const override { return 0; }

 private:
  const kernels::WorkspaceLimits limits_;
};

class RecordingExecutable : public kernels::Executable {
 public:
  kernels::Status CreateWorkspace(const kernels::WorkspaceLimits& limits,
                                  std::unique_ptr<kernels::Workspace>* workspace) const override {
    *workspace = std::make_unique<RecordingWorkspace>(limits);
    return kernels::OkStatus();
  }
  kernels::Status Run(const kernels::RaggedBatch& batch, const kernels::SequenceOutput* outputs,
                      kernels::Workspace& workspace) const override {
    EXPECT_LE(batch.num_tokens(), workspace.limits().max_tokens);
    EXPECT_LE(batch.num_sequences, workspace.limits().max_sequences);
    EXPECT_NE(batch.token_ids == nullptr, batch.features == nullptr);
    std::string line = batch.token_ids != nullptr ? "ids" : "features";
    for (int i = 0; i < batch.num_sequences; ++i) {
      line += " |";
      if (batch.initial_states != nullptr && batch.initial_states[i] != nullptr) {
        absl::StrAppend(&line, " from ", *batch.initial_states[i]);
      }
      for (int t = batch.offsets[i]; t < batch.offsets[i + 1]; ++t) {
        absl::StrAppend(&line, " ",
                        batch.token_ids != nullptr ? batch.token_ids[t] : batch.features[2 * t]);
      }
      if (outputs[i].pooled != nullptr) *outputs[i].pooled = static_cast<float>(i);
    }
    lines.push_back(line);
    return error;
  }
  size_t weight_bytes() const override { return 0; }

  mutable std::vector<std::string> lines;
  kernels::Status error;
};

class StackBatchRunnerTest : public ::testing::Test {
 protected:
  StackBatchRunnerTest() {
    spec_.input_size = 2;
    spec_.vocabulary_size = 100;
    spec_.layers.resize(1);
    spec_.layers[0].input_size = 2;
    spec_.layers[0].hidden_size = 3;
  }
  void Create(int max_tokens, int max_sequences) {
    runner_ =
        tasks::StackBatchRunner::Create(executable_, spec_, {max_tokens, max_sequences}).value();
  }
  static tasks::StackTask Ids(std::vector<int32_t> ids, float* pooled = nullptr) {
    tasks::StackTask task;
    task.num_tokens = static_cast<int>(ids.size());
    task.token_ids = std::move(ids);
    task.output.pooled = pooled;
    return task;
  }
  static tasks::StackTask Features(std::vector<float> features, float* pooled = nullptr) {
    tasks::StackTask task;
    task.num_tokens = static_cast<int>(features.size()) / 2;
    task.features = std::move(features);
    task.output.pooled = pooled;
    return task;
  }
  absl::Status Run(const std::vector<tasks::StackTask>& tasks) {
    executable_.lines.clear();
    std::vector<const SequenceTask*> sequences;
    for (const tasks::StackTask& task : tasks) sequences.push_back(&task);
    return runner_->Run(sequences);
  }

  RecordingExecutable executable_;
  kernels::StackSpec spec_;
  std::unique_ptr<tasks::StackBatchRunner> runner_;
};

TEST_F(StackBatchRunnerTest, PacksTokenIdsAndFeaturesIntoBatchesOfTheirOwn) {
  Create(20, 10);
  float pooled[4] = {-1, -1, -1, -1};
  EXPECT_TRUE(Run({Ids({1, 2, 3}, &pooled[0]), Features({1.5, 0, 2.5, 0}, &pooled[1]),
                   Ids({4}, &pooled[2]), Features({3.5, 0}, &pooled[3])})
                  .ok());
  EXPECT_THAT(executable_.lines, ElementsAre("ids | 1 2 3 | 4", "features | 1.5 2.5 | 3.5"));
  EXPECT_THAT(pooled, ElementsAre(0, 0, 1, 1));
  EXPECT_TRUE(Run({Ids({5})}).ok());
  EXPECT_THAT(executable_.lines, ElementsAre("ids | 5"));
  EXPECT_TRUE(Run({Features({5, 6})}).ok());
  EXPECT_THAT(executable_.lines, ElementsAre("features | 5"));
}

TEST_F(StackBatchRunnerTest, PassesOnTheStatesThatSequencesGoOnFrom) {
  Create(20, 10);
  const float first = 7;
  const float second = 8;
  std::vector<tasks::StackTask> tasks = {Ids({1, 2}), Ids({3}), Features({4, 0}), Features({5, 0})};
  tasks[1].initial_state = &first;
  tasks[2].initial_state = &second;
  EXPECT_TRUE(Run(tasks).ok());
  EXPECT_THAT(executable_.lines, ElementsAre("ids | 1 2 | from 7 3", "features | from 8 4 | 5"));
  EXPECT_TRUE(Run({Ids({1}), Ids({2})}).ok());
  EXPECT_THAT(executable_.lines, ElementsAre("ids | 1 | 2"));
}

TEST_F(StackBatchRunnerTest, RefusesASequenceThatContradictsItself) {
  Create(20, 10);
  tasks::StackTask short_ids = Ids({1, 2});
  short_ids.num_tokens = 3;
  tasks::StackTask odd_features = Features({1, 2});
  odd_features.features.push_back(3);
  tasks::StackTask both = Ids({1});
  both.features = {1, 2};
  const auto message = [this](const tasks::StackTask& task) {
    const absl::Status status = Run({Ids({1}), task});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(executable_.lines.empty());
    return std::string(status.message());
  };
  EXPECT_EQ(message(short_ids), "token_ids: expected 3 values, found 2");
  EXPECT_EQ(message(odd_features), "features: expected 1 x 2 values, found 3");
  EXPECT_EQ(message(both), "expected token_ids or features, found both");
}

TEST_F(StackBatchRunnerTest, RefusesABatchOverItsLimits) {
  Create(4, 2);
  EXPECT_TRUE(Run({Ids({1, 2}), Ids({3, 4})}).ok());
  EXPECT_EQ(Run({Ids({1, 2}), Ids({3, 4, 5})}).code(), absl::StatusCode::kInternal);
  EXPECT_EQ(Run({Ids({1}), Ids({2}), Ids({3})}).code(), absl::StatusCode::kInternal);
}

TEST_F(StackBatchRunnerTest, PassesTheBackendsErrorOn) {
  Create(4, 2);
  executable_.error = kernels::InvalidArgument("token 9");
  EXPECT_EQ(Run({Ids({9})}), absl::InvalidArgumentError("token 9"));
  EXPECT_FALSE(runner_->WarmUp().ok());
}

TEST_F(StackBatchRunnerTest, WarmsUpFromOneTokenOn) {
  Create(20, 10);
  ASSERT_TRUE(runner_->WarmUp().ok());
  ASSERT_GE(executable_.lines.size(), 2u);
  EXPECT_EQ(executable_.lines[0], "ids | 0");
  spec_.vocabulary_size = 0;
  executable_.lines.clear();
  ASSERT_TRUE(runner_->WarmUp().ok());
  EXPECT_EQ(executable_.lines[0], "features | 0");
}

// The bundled model -------------------------------------------------------------------------------

class BundledModelTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(kernels::CreateBackend(GetParam(), &backend_).ok());
    model_ = models::Model::Load("models/pretrained/trec/1", "trec", 1, *backend_, {}).value();
  }

  absl::StatusOr<std::unique_ptr<Engine>> Create(EngineOptions options) {
    pools_.push_back(MakePool({kWorkers}, &clock_, &options, /*interrupts=*/true));
    return Engine::Create(model_, tasks::RunnersOf(model_->task()), options, &clock_, nullptr);
  }

  std::unique_ptr<kernels::Backend> backend_;
  static constexpr int kWorkers = 3;

  std::shared_ptr<const models::Model> model_;
  RealClock clock_;
  std::vector<std::unique_ptr<WorkerPool>> pools_;
};

TEST_P(BundledModelTest, ServesTheSameBitsAloneAndInABatch) {
  EngineOptions options;
  options.instances = 2;
  options.batcher.max_batch_tokens = 64;
  const auto engine = Create(options).value();
  EXPECT_EQ(engine->instances(), 2);
  const size_t num_labels = model_->labels().size();
  std::deque<tasks::StackTask> tasks;
  const auto request = [&](int length, int first, float* logits) {
    BatchRequest request;
    tasks::StackTask& task = tasks.emplace_back();
    for (int t = 0; t < length; ++t) {
      task.token_ids.push_back((first + 31 * t) % model_->spec().vocabulary_size);
    }
    task.num_tokens = length;
    task.output.pooling = model_->spec().pooling;
    task.output.logits = logits;
    request.sequences.push_back(&task);
    return request;
  };
  constexpr int kCalls = 40;
  std::vector<std::vector<float>> alone(kCalls, std::vector<float>(num_labels));
  std::vector<std::vector<float>> together(kCalls, std::vector<float>(num_labels));
  for (int i = 0; i < kCalls; ++i) {
    EngineCall call;
    ASSERT_TRUE(call.Submit(*engine, request(1 + i % 13, i, alone[i].data())).ok());
    ASSERT_TRUE(call.Wait().ok()) << call.Wait();
  }
  std::vector<EngineCall> calls(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    ASSERT_TRUE(calls[i].Submit(*engine, request(1 + i % 13, i, together[i].data())).ok());
  }
  for (EngineCall& call : calls) EXPECT_TRUE(call.Wait().ok()) << call.Wait();
  EXPECT_EQ(alone, together);
  EXPECT_NE(alone[0], alone[1]);
}

TEST_P(BundledModelTest, ABadTokenIdFailsAlone) {
  EngineOptions options;
  options.instances = 1;
  const auto engine = Create(options).value();
  constexpr int kCalls = 50;
  std::vector<float> logits(kCalls * model_->labels().size());
  std::vector<tasks::StackTask> tasks(kCalls);
  std::vector<EngineCall> calls(kCalls);
  for (int i = 0; i < kCalls; ++i) {
    tasks[i].token_ids.assign(4, i == 20 ? 1 << 30 : 1);
    tasks[i].num_tokens = 4;
    tasks[i].output.pooling = model_->spec().pooling;
    tasks[i].output.logits = &logits[i * model_->labels().size()];
    BatchRequest request;
    request.sequences = {&tasks[i]};
    ASSERT_TRUE(calls[i].Submit(*engine, std::move(request)).ok());
  }
  for (int i = 0; i < kCalls; ++i) {
    EXPECT_EQ(calls[i].Wait().code(),
              i == 20 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk);
  }
}

TEST_P(BundledModelTest, CreateNamesTheOptionThatIsOutOfRange) {
  EngineOptions options;
  options.instances = -1;
  EXPECT_EQ(Create(options).status(),
            absl::InvalidArgumentError("instances: expected 0 (automatic) to 1024, found -1"));
  options.instances = 0;
  options.batcher.max_batch_sequences = 0;
  EXPECT_EQ(Create(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_P(BundledModelTest, AsManyInstancesAsWorkersByDefault) {
  EngineOptions options;
  options.batcher.max_batch_tokens = 32;
  const auto engine = Create(options).value();
  EXPECT_EQ(engine->instances(), kWorkers);
}

INSTANTIATE_TEST_SUITE_P(Backends, BundledModelTest, ::testing::Values("reference", "cpu"),
                         [](const auto& info) { return info.param; });

// A state of this model takes a page of 128 bytes and one of 64.
TEST(EngineOfALanguageModelTest, StatesKeepToTheBudget) {
  std::unique_ptr<kernels::Backend> backend;
  ASSERT_TRUE(kernels::CreateBackend("reference", &backend).ok());
  const auto model =
      models::Model::Load("tests/golden/language_model/fresh", "lm", 1, *backend, {}).value();
  constexpr size_t kStateBytes = 128 + 64;
  for (const size_t budget_bytes : {2 * kStateBytes, kStateBytes - 1}) {
    EngineOptions options;
    options.instances = 1;
    options.state_budgets = {std::make_shared<kernels::ArenaBudget>(budget_bytes)};
    const RealClock clock;
    const std::unique_ptr<WorkerPool> pool = MakePool({1}, &clock, &options);
    EngineObserver observer;
    auto engine =
        Engine::Create(model, tasks::RunnersOf(model->task()), options, &clock, &observer).value();
    // All but the last one ask for their states.
    constexpr size_t kSequences = 7;
    std::vector<tasks::ScoreTask> scores(kSequences);
    std::vector<kernels::StateArena::State> states(kSequences);
    std::vector<float> log_probs(kSequences);
    std::vector<EngineCall> calls(kSequences);
    for (size_t i = 0; i < kSequences; ++i) {
      scores[i].log_probs = &log_probs[i];
      if (i + 1 < kSequences) scores[i].final_state = &states[i];
      scores[i].token_ids = {static_cast<int32_t>(i)};
      scores[i].num_tokens = 1;
      BatchRequest request;
      request.sequences = {&scores[i]};
      ASSERT_TRUE(calls[i].Submit(*engine, std::move(request)).ok());
    }
    for (size_t i = 0; i < kSequences; ++i) {
      const absl::Status status = calls[i].Wait();
      if (budget_bytes >= kStateBytes || i + 1 == kSequences) {
        EXPECT_TRUE(status.ok()) << i << ": " << status;
        EXPECT_EQ(states[i].values.size(), i + 1 < kSequences ? 30u : 0u);
      } else {
        EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
        EXPECT_THAT(std::string(status.message()),
                    HasSubstr("the arena's budget of 191 bytes has no room for 192 bytes more"));
      }
    }
    ASSERT_TRUE(engine->state_stats().has_value());
    EXPECT_EQ(engine->state_stats()->slots, 0);
    EXPECT_EQ(engine->state_stats()->used_bytes, 0);
  }
}

}  // namespace
}  // namespace sru::server::batching
