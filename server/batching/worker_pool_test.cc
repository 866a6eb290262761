#include "server/batching/worker_pool.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/turn.h"
#include "server/base/clock.h"
#include "server/base/cores.h"
#include "server/batching/queue/flow.h"
#include "server/batching/work_source.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/poll.h"

namespace sru::server::batching {
namespace {

using ::sru::testing::PollUntil;
using ::testing::ElementsAre;

constexpr int kAnyDevice = -1;

// Threads stop at it until it is open. It may go while they pass.
class Gate {
 public:
  void Pass() {
    const std::shared_ptr<State> state = state_;
    const MutexLock lock(&state->mutex);
    ++state->come;
    state->changed.SignalAll();
    while (!state->is_open) state->changed.Wait(&state->mutex);
  }
  void Open() {
    const MutexLock lock(&state_->mutex);
    state_->is_open = true;
    state_->changed.SignalAll();
  }
  // Waits until so many have come to it, ever.
  void AwaitCome(int count) {
    const MutexLock lock(&state_->mutex);
    while (state_->come < count) state_->changed.Wait(&state_->mutex);
  }
  int come() const {
    const MutexLock lock(&state_->mutex);
    return state_->come;
  }

 private:
  struct State {
    Mutex mutex;
    CondVar changed;
    int come ABSL_GUARDED_BY(mutex) = 0;
    bool is_open ABSL_GUARDED_BY(mutex) = false;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

// What happened, in order.
class Events {
 public:
  void Add(std::string event) {
    const MutexLock lock(&mutex_);
    events_.push_back(std::move(event));
  }
  std::vector<std::string> all() const {
    const MutexLock lock(&mutex_);
    return events_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
};

// Does what tests submit.
class PuppetSource final : public WorkSource {
 public:
  using Work = std::function<void(WorkerPool::Job* job)>;

  explicit PuppetSource(WorkerPool* pool, const Clock* clock, std::vector<int> places = {100})
      : WorkSource(Options(this), pool, std::move(places), absl::ZeroDuration(), clock) {}
  ~PuppetSource() override { End(); }

  // `at`: when it may be computed. Each piece is of another caller unless `flow` says whose it is.
  void Submit(Work work, absl::Time at = absl::InfinitePast(), FlowHandle flow = nullptr,
              int device = kAnyDevice) {
    Put(std::move(work), at, std::move(flow), device);
    Notify();
  }
  // The same, but nobody is told.
  void Put(Work work, absl::Time at = absl::InfinitePast(), FlowHandle flow = nullptr,
           int device = kAnyDevice) {
    if (flow == nullptr) flow = std::make_shared<Flow>("somebody");
    const MutexLock lock(&mutex_);
    pieces_.push_back({std::move(work), at, std::move(flow), device});
  }
  using WorkSource::Notify;
  // Waits for what was submitted, and leaves the pool.
  void End() {
    if (has_left_.load()) return;
    Close();
    Leave();
    has_left_ = true;
  }
  int computed() const { return computed_.load(); }
  int calls_after_end() const { return calls_after_end_.load(); }

  void Close() override {
    const MutexLock lock(&mutex_);
    is_closed_ = true;
  }
  NextWork Next(int device, absl::Time /*now*/, bool /*nested*/) override {
    if (has_left_.load()) ++calls_after_end_;
    const MutexLock lock(&mutex_);
    const auto piece = FindFirst(device);
    return piece == pieces_.end() ? NextWork() : NextWork{piece->at, piece->flow.get()};
  }
  bool IsDone() override {
    if (has_left_.load()) ++calls_after_end_;
    const MutexLock lock(&mutex_);
    return is_closed_ && pieces_.empty();
  }
  bool RunNext(WorkerPool::Job* job) override {
    if (has_left_.load()) ++calls_after_end_;
    Piece piece;
    bool left_some = false;
    {
      const MutexLock lock(&mutex_);
      const auto first = FindFirst(job->device());
      if (first == pieces_.end() || first->at > clock().Now()) return false;
      piece = std::move(*first);
      pieces_.erase(first);
      left_some = !pieces_.empty();
    }
    if (left_some) Notify();
    job->Begin({{piece.flow, 1}}, this);
    const kernels::TurnEnd::Scope turns(job);
    piece.work(job);
    ++computed_;
    return true;
  }

 private:
  struct Piece {
    Work work;
    absl::Time at;
    FlowHandle flow;
    int device = kAnyDevice;
  };

  static WorkSourceOptions Options(const void* model) {
    WorkSourceOptions options;
    options.model = model;
    return options;
  }
  void CutOff() override {
    const MutexLock lock(&mutex_);
    pieces_.clear();
  }
  void OnDeviceLost(int /*device*/, const absl::Status& /*error*/) override {}

  std::deque<Piece>::iterator FindFirst(int device) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    auto first = pieces_.end();
    for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
      if (piece->device != kAnyDevice && piece->device != device) continue;
      if (piece->at == absl::InfinitePast()) return piece;
      if (first == pieces_.end() || piece->at < first->at) first = piece;
    }
    return first;
  }

  Mutex mutex_;
  std::deque<Piece> pieces_ ABSL_GUARDED_BY(mutex_);
  bool is_closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<bool> has_left_{false};
  std::atomic<int> computed_{0};
  std::atomic<int> calls_after_end_{0};
};

class WorkerPoolTest : public ::testing::Test {
 protected:
  void Start(std::vector<int> workers) {
    options_.workers = std::move(workers);
    pool_ = std::make_unique<WorkerPool>(options_, &clock_);
  }
  PuppetSource& AddSource() {
    PuppetSource& source = *sources_.emplace_back(
        std::make_unique<PuppetSource>(pool_.get(), &clock_, std::vector<int>(num_devices(), 100)));
    source.Start();
    return source;
  }
  size_t num_devices() const { return options_.workers.size(); }
  // Until time has passed, so that what computes has had more than who has not.
  void Spin(absl::Duration time = absl::Microseconds(100)) {
    const absl::Time start = clock_.Now();
    while (clock_.Now() - start < time) std::this_thread::yield();
  }
  // Work that ends its turn once between its beginning and its end, and has had more by then than
  // all that computed before.
  PuppetSource::Work WithATurn(Events* events, const std::string& name,
                               std::function<void()> before_end_of_turn) {
    return [=](WorkerPool::Job* job) {
      events->Add(name);
      before_end_of_turn();
      Spin(clock_.Now() - start_);
      job->OnTurnEnd();
      events->Add("/" + name);
    };
  }

  const RealClock clock_;
  const absl::Time start_ = clock_.Now();
  WorkerPoolOptions options_;
  std::unique_ptr<WorkerPool> pool_;
  std::deque<std::unique_ptr<PuppetSource>> sources_;
};

TEST_F(WorkerPoolTest, AWorkerComputesWhatASourceHas) {
  Start({1});
  PuppetSource& source = AddSource();
  std::atomic<int> sum{0};
  for (int i = 1; i <= 100; ++i) {
    source.Submit([&sum, i](WorkerPool::Job* job) {
      EXPECT_EQ(job->device(), 0);
      EXPECT_FALSE(job->is_nested());
      sum += i;
    });
  }
  source.End();
  EXPECT_EQ(sum, 5050);
}

TEST_F(WorkerPoolTest, ComputesWhatASourceHadBeforeItWasAdded) {
  Start({1});
  for (const bool is_told : {false, true}) {
    PuppetSource source(pool_.get(), &clock_);
    std::atomic<bool> ran{false};
    source.Put([&ran](WorkerPool::Job* /*job*/) { ran = true; });
    if (is_told) source.Notify();
    source.Start();
    const bool in_time = PollUntil([&ran] { return ran.load(); });
    EXPECT_TRUE(in_time) << is_told;
    if (!in_time) source.Drain(clock_.Now());  // so that it can leave
  }
}

TEST_F(WorkerPoolTest, WakesUpAtTheTimeThatASourceSays) {
  Start({2});
  PuppetSource& source = AddSource();
  // Also while the other worker computes.
  Gate gate;
  for (const bool other_computes : {false, true}) {
    if (other_computes) {
      source.Submit([&gate](WorkerPool::Job* /*job*/) { gate.Pass(); });
      gate.AwaitCome(1);
    }
    const absl::Time at = clock_.Now() + absl::Milliseconds(5);
    Gate started;
    absl::Time start;
    source.Submit(
        [&](WorkerPool::Job* /*job*/) {
          start = clock_.Now();
          started.Pass();
        },
        at);
    started.AwaitCome(1);
    started.Open();
    EXPECT_GE(start, at);
  }
  gate.Open();
  source.End();
}

// Which it learns first, computes, and then sleeps.
TEST_F(WorkerPoolTest, TheWorkerThatTakesWorkLeavesTheAlarmToAnother) {
  Start({2});
  PuppetSource& source = AddSource();
  Gate later, now;
  source.Put([&later](WorkerPool::Job* /*job*/) { later.Pass(); },
             clock_.Now() + absl::Milliseconds(20));
  source.Submit([&now](WorkerPool::Job* /*job*/) { now.Pass(); });
  now.AwaitCome(1);
  later.AwaitCome(1);  // while the first one computes
  now.Open();
  later.Open();
  source.End();
}

TEST_F(WorkerPoolTest, ASourceMayComeToHaveWorkEarlierThanItHasSaid) {
  Start({1});
  PuppetSource& late = AddSource();
  PuppetSource& early = AddSource();
  late.Submit([](WorkerPool::Job* /*job*/) {}, clock_.Now() + absl::Hours(1));
  // Each time the worker may sleep already.
  for (int i = 0; i < 50; ++i) {
    Gate gate;
    gate.Open();
    (i % 2 == 0 ? late : early).Submit([&gate](WorkerPool::Job* /*job*/) { gate.Pass(); });
    gate.AwaitCome(1);
  }
  EXPECT_FALSE(late.Drain(clock_.Now()));  // cuts off the last piece
}

TEST_F(WorkerPoolTest, TwoWorkersComputeTwoPiecesAtATime) {
  Start({2});
  PuppetSource& one = AddSource();
  PuppetSource& other = AddSource();
  for (PuppetSource* second : {&one, &other}) {
    Gate gate;
    for (PuppetSource* source : {&one, second}) {
      source->Submit([&gate](WorkerPool::Job* /*job*/) { gate.Pass(); });
    }
    gate.AwaitCome(2);
    gate.Open();
  }
}

TEST_F(WorkerPoolTest, NoMoreThreadsComputeThanThereAreWorkers) {
  options_.interrupts = true;
  Start({3});
  std::atomic<int> computing{0};
  std::atomic<int> most{0};
  Gate all;
  for (int i = 0; i < 20; ++i) AddSource();
  for (int i = 0; i < 50; ++i) {
    for (auto& source : sources_) {
      source->Submit([&](WorkerPool::Job* job) {
        const bool is_nested = job->is_nested();
        const int now = is_nested ? computing.load() : ++computing;
        int before = most.load();
        while (before < now && !most.compare_exchange_weak(before, now)) continue;
        all.Pass();
        job->OnTurnEnd();
        if (!is_nested) --computing;
      });
    }
  }
  all.AwaitCome(3);
  EXPECT_FALSE(pool_->has_idle_worker(0));
  all.Open();
  for (auto& source : sources_) source->End();
  EXPECT_EQ(all.come(), 1000);
  EXPECT_EQ(most, 3);
  EXPECT_TRUE(PollUntil([&] { return pool_->has_idle_worker(0); }));
}

TEST_F(WorkerPoolTest, AThreadMayStandInForAnIdleWorker) {
  Start({2});
  PuppetSource& source = AddSource();
  Gate first, second;
  source.Submit([&first](WorkerPool::Job* /*job*/) { first.Pass(); });
  first.AwaitCome(1);
  ASSERT_TRUE(pool_->TryEnter(&source, 0, /*interrupts=*/false));
  EXPECT_FALSE(pool_->TryEnter(&source, 0, /*interrupts=*/false)) << "all compute";
  EXPECT_FALSE(pool_->has_idle_worker(0));
  WorkerPool::Job job(pool_.get(), 0, /*outer=*/nullptr, /*may_be_interrupted=*/false);
  job.Begin({{nullptr, 1}}, &source);
  EXPECT_FALSE(job.HasIdleCore());
  source.Submit([&second](WorkerPool::Job* /*job*/) { second.Pass(); });
  // The idle worker looks whether it may compute; nobody has told the pool otherwise.
  Spin(absl::Milliseconds(2));
  job.OnTurnEnd();
  EXPECT_EQ(second.come(), 0);
  pool_->Leave(&source, &job);
  second.AwaitCome(1);
  EXPECT_FALSE(pool_->TryEnter(&source, 0, /*interrupts=*/false));
  first.Open();
  second.Open();
  source.End();
  EXPECT_FALSE(pool_->TryEnter(&source, 0, /*interrupts=*/false)) << "it has left";
}

TEST_F(WorkerPoolTest, AThreadMayInterruptBusyWorkersForWhatGoesFirst) {
  options_.interrupts = true;
  Start({1});
  PuppetSource& slow = AddSource();
  PuppetSource& quick = AddSource();
  const auto heavy = std::make_shared<Flow>("heavy");
  Gate gate;
  slow.Submit([&gate](WorkerPool::Job* /*job*/) { gate.Pass(); }, absl::InfinitePast(), heavy);
  gate.AwaitCome(1);
  Spin();
  EXPECT_FALSE(pool_->TryEnter(&quick, 0, /*interrupts=*/true)) << "it has no work";
  slow.Put([](WorkerPool::Job* /*job*/) {}, absl::InfinitePast(), heavy);
  EXPECT_FALSE(pool_->TryEnter(&slow, 0, /*interrupts=*/true)) << "it has had as much";
  std::thread::id thread;
  quick.Put([&thread](WorkerPool::Job* /*job*/) { thread = std::this_thread::get_id(); });
  EXPECT_FALSE(pool_->TryEnter(&quick, 0, /*interrupts=*/false)) << "the worker computes";
  ASSERT_TRUE(pool_->TryEnter(&quick, 0, /*interrupts=*/true));
  EXPECT_FALSE(pool_->TryEnter(&quick, 0, /*interrupts=*/true)) << "one at a time";
  WorkerPool::Job job(pool_.get(), 0, /*outer=*/nullptr, /*may_be_interrupted=*/false);
  EXPECT_TRUE(quick.RunNext(&job));
  pool_->Leave(&quick, &job);
  EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_FALSE(pool_->has_idle_worker(0));
  gate.Open();
  slow.End();
  EXPECT_TRUE(PollUntil([&] { return pool_->has_idle_worker(0); }));
  EXPECT_FALSE(pool_->TryEnter(&quick, 0, /*interrupts=*/true)) << "the worker is idle";
}

TEST_F(WorkerPoolTest, ACoreIsIdleWhileAWorkerIs) {
  Start({2});
  PuppetSource& source = AddSource();
  Gate first, second;
  WorkerPool::Job* job = nullptr;
  EXPECT_TRUE(pool_->has_idle_worker(0));
  source.Submit([&](WorkerPool::Job* own) {
    job = own;
    first.Pass();
  });
  first.AwaitCome(1);
  EXPECT_TRUE(job->HasIdleCore());
  source.Submit([&](WorkerPool::Job* /*job*/) { second.Pass(); });
  second.AwaitCome(1);
  EXPECT_FALSE(job->HasIdleCore());
  EXPECT_FALSE(pool_->has_idle_worker(0));
  second.Open();
  EXPECT_TRUE(PollUntil([&] { return job->HasIdleCore() && pool_->has_idle_worker(0); }));
  first.Open();
}

TEST_F(WorkerPoolTest, WorkIsInterruptedAtTheEndOfATurn) {
  options_.interrupts = true;
  Start({1});
  PuppetSource& slow = AddSource();
  PuppetSource& quick = AddSource();
  Events events;
  std::thread::id slow_thread, quick_thread;
  constexpr absl::Duration kQuick = absl::Milliseconds(3);
  slow.Submit([&](WorkerPool::Job* job) {
    slow_thread = std::this_thread::get_id();
    const auto end_turn = [] { kernels::TurnEnd::OfThisThread()->OnTurnEnd(); };
    Spin();
    end_turn();
    events.Add("slow");
    EXPECT_EQ(job->interrupted(), absl::ZeroDuration());
    quick.Submit([&](WorkerPool::Job* nested) {
      quick_thread = std::this_thread::get_id();
      EXPECT_TRUE(nested->is_nested());
      EXPECT_EQ(kernels::TurnEnd::OfThisThread(), nested);
      const absl::Duration used = ThreadTime();
      while (ThreadTime() - used < kQuick) continue;
      events.Add("quick");
    });
    Spin();
    const absl::Time start = clock_.Now();
    const absl::Duration used = ThreadTime();
    end_turn();
    EXPECT_LE(job->interrupted(), clock_.Now() - start);
    EXPECT_GE(job->interrupted(), kQuick);
    EXPECT_LE(job->interrupted_thread_time(), ThreadTime() - used);
    EXPECT_GE(job->interrupted_thread_time(), kQuick);
    EXPECT_EQ(kernels::TurnEnd::OfThisThread(), job);
    events.Add("slow goes on");
  });
  slow.End();
  // The next one begins anew.
  quick.Submit([](WorkerPool::Job* job) {
    EXPECT_EQ(job->interrupted(), absl::ZeroDuration());
    EXPECT_EQ(job->interrupted_thread_time(), absl::ZeroDuration());
  });
  quick.End();
  EXPECT_THAT(events.all(), ElementsAre("slow", "quick", "slow goes on"));
  EXPECT_EQ(slow_thread, quick_thread);
}

TEST_F(WorkerPoolTest, WorkIsNotInterruptedUnlessAsked) {
  Start({1});
  PuppetSource& slow = AddSource();
  PuppetSource& quick = AddSource();
  Events events;
  slow.Submit(WithATurn(&events, "slow", [&] {
    quick.Submit([&events](WorkerPool::Job* job) {
      EXPECT_FALSE(job->is_nested());
      events.Add("quick");
    });
  }));
  slow.End();
  quick.End();
  EXPECT_THAT(events.all(), ElementsAre("slow", "/slow", "quick"));
}

// All that came meanwhile, one after the other.
TEST_F(WorkerPoolTest, AllThatHasToGoFirstIsComputedNested) {
  options_.interrupts = true;
  Start({1});
  PuppetSource& slow = AddSource();
  PuppetSource& quick = AddSource();
  Events events;
  slow.Submit(WithATurn(&events, "slow", [&] {
    for (int i = 0; i < 3; ++i)
      quick.Submit([&](WorkerPool::Job* /*job*/) { events.Add("quick"); });
  }));
  slow.End();
  quick.End();
  EXPECT_THAT(events.all(), ElementsAre("slow", "quick", "quick", "quick", "/slow"));
}

// One caller's as well, until he has had as much as the one whose work is interrupted.
TEST(WorkerPoolTimeTest, WhoHasHadLessCatchesUpNested) {
  FakeClock clock;
  WorkerPoolOptions options;
  options.interrupts = true;
  WorkerPool pool(options, &clock);
  PuppetSource slow(&pool, &clock);
  PuppetSource quick(&pool, &clock);
  slow.Start();
  quick.Start();
  Events events;
  const FlowHandle flow = std::make_shared<Flow>("quick");
  slow.Submit([&](WorkerPool::Job* job) {
    events.Add("slow");
    for (int i = 0; i < 3; ++i) {
      quick.Submit(
          [&](WorkerPool::Job* /*job*/) {
            events.Add("quick");
            clock.Advance(absl::Milliseconds(1));
          },
          absl::InfinitePast(), flow);
    }
    clock.Advance(absl::Milliseconds(10));
    job->OnTurnEnd();
    EXPECT_EQ(job->interrupted(), absl::Milliseconds(3));
    events.Add("/slow");
  });
  slow.End();
  quick.End();
  EXPECT_THAT(events.all(), ElementsAre("slow", "quick", "quick", "quick", "/slow"));
}

TEST_F(WorkerPoolTest, InterruptionsAreNestedUpToALimit) {
  static_assert(WorkerPool::kMostNested == 2);
  options_.interrupts = true;
  Start({1});
  for (int i = 0; i < 4; ++i) AddSource();
  Events events;
  // Each begins while the one before computes.
  std::function<void(int)> begin = [&](int i) {
    sources_[i]->Submit(WithATurn(&events, std::string(1, static_cast<char>('a' + i)), [&, i] {
      if (i + 1 < 4) begin(i + 1);
    }));
  };
  begin(0);
  for (auto& source : sources_) source->End();
  EXPECT_THAT(events.all(), ElementsAre("a", "b", "c", "/c", "d", "/d", "/b", "/a"));
}

// What computed in a stack is over with it: each runs once, whatever interrupts what.
TEST_F(WorkerPoolTest, WorkOfOneCallerAndModelIsNotNestedInItself) {
  options_.interrupts = true;
  Start({1});
  PuppetSource& source = AddSource();
  const FlowHandle flow = std::make_shared<Flow>("a");
  for (int i = 0; i < 20; ++i) {
    source.Submit(
        [this](WorkerPool::Job* job) {
          EXPECT_FALSE(job->is_nested());
          Spin();
          job->OnTurnEnd();
        },
        absl::InfinitePast(), flow);
  }
  source.End();
  EXPECT_EQ(source.computed(), 20);
}

TEST_F(WorkerPoolTest, RemoveWaitsUntilNobodyComputes) {
  Start({2});
  PuppetSource& source = AddSource();
  Gate gate;
  std::atomic<bool> has_ended{false};
  source.Submit([&](WorkerPool::Job* /*job*/) { gate.Pass(); });
  gate.AwaitCome(1);
  std::thread remover([&] {
    pool_->Remove(&source);
    EXPECT_TRUE(has_ended);
  });
  PuppetSource& other = AddSource();
  for (int i = 0; i < 20; ++i) other.Submit([](WorkerPool::Job* /*job*/) {});
  other.End();  // a thread that computes for another source ends, which changes nothing
  has_ended = true;
  gate.Open();
  remover.join();
}

// A thread that stands in for a worker counts like one.
TEST_F(WorkerPoolTest, RemoveWaitsForAThreadThatStandsIn) {
  Start({1});
  PuppetSource& source = AddSource();
  ASSERT_TRUE(pool_->TryEnter(&source, 0, /*interrupts=*/false));
  std::atomic<bool> has_left{false};
  std::thread remover([&] {
    source.End();
    EXPECT_TRUE(has_left);
  });
  Spin(absl::Milliseconds(2));
  WorkerPool::Job job(pool_.get(), 0, /*outer=*/nullptr, /*may_be_interrupted=*/false);
  has_left = true;
  pool_->Leave(&source, &job);
  remover.join();
}

TEST_F(WorkerPoolTest, ASourceThatHasLeftIsNotCalled) {
  options_.interrupts = true;
  Start({2});
  PuppetSource& busy = AddSource();
  std::atomic<bool> stop{false};
  std::thread feeder([&] {
    while (!stop) {
      const int computed = busy.computed();
      busy.Submit([](WorkerPool::Job* job) { job->OnTurnEnd(); });
      while (busy.computed() == computed) std::this_thread::yield();
    }
  });
  for (int round = 0; round < 50; ++round) {
    PuppetSource source(pool_.get(), &clock_);
    source.Start();
    std::atomic<bool> is_over{false};
    std::thread notifier([&] {
      while (!is_over) source.Notify();
    });
    for (int i = 0; i < 5; ++i) source.Submit([](WorkerPool::Job* job) { job->OnTurnEnd(); });
    source.End();
    EXPECT_EQ(source.computed(), 5);
    for (int i = 0; i < 3; ++i) {
      source.Notify();
      EXPECT_FALSE(pool_->TryEnter(&source, 0, /*interrupts=*/false));
    }
    Spin();
    is_over = true;
    notifier.join();
    ASSERT_EQ(source.calls_after_end(), 0);
  }
  stop = true;
  feeder.join();
}

TEST_F(WorkerPoolTest, WaitsUntilASourceIsDone) {
  Start({1});
  PuppetSource& source = AddSource();
  Gate gate;
  source.Submit([&gate](WorkerPool::Job* /*job*/) { gate.Pass(); });
  gate.AwaitCome(1);
  source.Close();
  EXPECT_FALSE(pool_->WaitUntilDone(&source, absl::InfinitePast()));
  const absl::Time deadline = clock_.Now() + absl::Milliseconds(5);
  EXPECT_FALSE(pool_->WaitUntilDone(&source, deadline));
  EXPECT_GE(clock_.Now(), deadline);
  std::thread opener([&gate] { gate.Open(); });
  EXPECT_TRUE(pool_->WaitUntilDone(&source, absl::InfiniteFuture()));
  EXPECT_EQ(source.computed(), 1);
  EXPECT_TRUE(pool_->WaitUntilDone(&source, absl::InfinitePast()));
  opener.join();
}

// It comes to an end without a worker's help.
TEST_F(WorkerPoolTest, WhoWaitsForTheEndIsToldOfAChange) {
  Start({1});
  PuppetSource& source = AddSource();
  for (int i = 0; i < 20; ++i) {
    std::thread closer([&source] {
      source.Close();
      source.Notify();
    });
    EXPECT_TRUE(pool_->WaitUntilDone(&source, absl::InfiniteFuture()));
    closer.join();
  }
}

TEST_F(WorkerPoolTest, ASourceOnTwoDevicesIsServedByTheWorkersOfBoth) {
  Start({1, 1});
  EXPECT_EQ(pool_->num_devices(), 2);
  PuppetSource& source = AddSource();
  Gate gate;
  std::atomic<int> sum{0};
  for (int i = 0; i < 2; ++i) {
    source.Submit([&](WorkerPool::Job* job) {
      sum += 1 + job->device();
      EXPECT_FALSE(job->HasIdleCore() && gate.come() == 2);
      gate.Pass();
    });
  }
  gate.AwaitCome(2);
  gate.Open();
  source.End();
  EXPECT_EQ(sum, 1 + 2);
}

// Whichever worker looks first.
TEST_F(WorkerPoolTest, WorkForOneDeviceWaitsForItsWorkers) {
  Start({1, 1});
  PuppetSource& source = AddSource();
  Gate gate;
  for (int i = 0; i < 3; ++i) {
    source.Submit(
        [&](WorkerPool::Job* job) {
          EXPECT_EQ(job->device(), 1);
          gate.Pass();
        },
        absl::InfinitePast(), nullptr, /*device=*/1);
  }
  gate.AwaitCome(1);
  // The other device's worker has nothing to do, and finds out.
  Gate other;
  other.Open();
  source.Submit([&](WorkerPool::Job* /*job*/) { other.Pass(); }, absl::InfinitePast(), nullptr,
                /*device=*/0);
  other.AwaitCome(1);
  EXPECT_TRUE(PollUntil([&] { return pool_->has_idle_worker(0); }));
  EXPECT_FALSE(pool_->TryEnter(&source, 1, /*interrupts=*/false));
  gate.Open();
  source.End();
  EXPECT_EQ(source.computed(), 4);
}

TEST_F(WorkerPoolTest, RunsItsWorkersWhereItIsTold) {
  std::vector<std::thread> threads;
  options_.launch = [&threads](std::function<void()> life) {
    threads.emplace_back(std::move(life));
  };
  Start({2});
  ASSERT_EQ(threads.size(), 2u);
  const std::set<std::thread::id> ids = {threads[0].get_id(), threads[1].get_id()};
  PuppetSource& source = AddSource();
  source.Submit(
      [&](WorkerPool::Job* /*job*/) { EXPECT_EQ(ids.count(std::this_thread::get_id()), 1u); });
  source.End();
  pool_->Stop();
  for (std::thread& thread : threads) thread.join();
}

// The cores that each of so many workers may run on.
std::vector<std::vector<int>> CoresOfEach(PuppetSource* source, int workers) {
  Mutex mutex;
  std::vector<std::vector<int>> cores;
  Gate all;
  for (int i = 0; i < workers; ++i) {
    source->Submit([&](WorkerPool::Job* /*job*/) {
      {
        const MutexLock lock(&mutex);
        cores.push_back(AllowedCores());
      }
      all.Pass();
    });
  }
  all.AwaitCome(workers);
  all.Open();
  source->End();
  return cores;
}

TEST_F(WorkerPoolTest, PinnedWorkersShareTheCoresEvenly) {
  const std::vector<int> allowed = AllowedCores();
  const int workers = 2 * static_cast<int>(allowed.size()) + 1;
  options_.pin_cores = true;
  Start({workers});
  std::map<int, int> workers_of;
  for (const std::vector<int>& cores : CoresOfEach(&AddSource(), workers)) {
    ASSERT_EQ(cores.size(), 1u);
    ++workers_of[cores[0]];
  }
  for (int core : allowed) {
    EXPECT_EQ(workers_of[core], core == allowed.front() ? 3 : 2) << "core " << core;
  }
  EXPECT_EQ(AllowedCores(), allowed);  // the thread that made them is not pinned
}

TEST_F(WorkerPoolTest, WorkersAreNotPinnedUnlessAsked) {
  Start({2});
  for (const std::vector<int>& cores : CoresOfEach(&AddSource(), 2)) {
    EXPECT_EQ(cores, AllowedCores());
  }
}

TEST_F(WorkerPoolTest, EverythingIsComputedExactlyOnce) {
  constexpr int kSources = 8;
  constexpr int kPieces = 20000;  // of each source
  constexpr int kSubmitters = 4;
  constexpr int kLoops = 2;
  options_.interrupts = true;
  Start({3});
  std::vector<FlowHandle> flows;
  for (int i = 0; i < 5; ++i) flows.push_back(std::make_shared<Flow>("x", 1 + i));
  for (int i = 0; i < kSources; ++i) AddSource();
  std::vector<std::atomic<char>> computed(kSources * kPieces);
  std::atomic<int> computing{0};
  std::atomic<int> most{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> submitters, loops;
  for (int i = 0; i < kSubmitters; ++i) {
    submitters.emplace_back([&, i] {
      for (int piece = i; piece < kSources * kPieces; piece += kSubmitters) {
        sources_[piece % kSources]->Submit(
            [&, piece](WorkerPool::Job* job) {
              ++computed[piece];
              const int now = job->is_nested() ? 0 : ++computing;
              if (now > most.load()) most = now;
              if (piece % 16 == 0) job->OnTurnEnd();
              if (!job->is_nested()) --computing;
            },
            absl::InfinitePast(), flows[piece % flows.size()]);
      }
    });
  }
  for (int i = 0; i < kLoops; ++i) {
    loops.emplace_back([&, i] {
      for (int n = i; !stop; ++n) {
        PuppetSource* const source = sources_[n % kSources].get();
        if (!pool_->TryEnter(source, 0, /*interrupts=*/false)) {
          std::this_thread::yield();
          continue;
        }
        WorkerPool::Job job(pool_.get(), 0, /*outer=*/nullptr, /*may_be_interrupted=*/false);
        source->RunNext(&job);
        pool_->Leave(source, &job);
      }
    });
  }
  for (std::thread& thread : submitters) thread.join();
  for (auto& source : sources_) source->End();
  stop = true;
  for (std::thread& thread : loops) thread.join();
  EXPECT_EQ(std::count(computed.begin(), computed.end(), 1), kSources * kPieces);
  EXPECT_LE(most, 3);
  for (const auto& source : sources_) EXPECT_EQ(source->computed(), kPieces);
  pool_->Stop();
  EXPECT_EQ(computing, 0);
}

}  // namespace
}  // namespace sru::server::batching
