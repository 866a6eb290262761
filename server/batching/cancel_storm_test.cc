// Calls of both kinds that are cancelled at random moments while the workers are busy: each ends
// once, nothing is left of it, and no worker of the pool sleeps while work waits.
// SRU_CANCEL_STORM_CALLS says how many calls.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/batching/batch_source.h"
#include "server/batching/step_source.h"
#include "server/batching/worker_pool.h"
#include "tests/testing/puppet_sequence.h"

namespace sru::server::batching {
namespace {

constexpr int kWorkers = 2;
constexpr int kClients = 3;
constexpr int kWindow = 64;  // calls of a client on their way
// Work that waits beside a free worker for so long has been forgotten: the machine may be busy.
constexpr absl::Duration kForgotten = absl::Seconds(5);

int64_t Calls() {
  const char* const calls = std::getenv("SRU_CANCEL_STORM_CALLS");
  return calls == nullptr ? 6000 : std::atoll(calls);
}

void Compute(size_t work) {
  const absl::Time end = absl::Now() + absl::Microseconds(20 + 5 * static_cast<int64_t>(work));
  while (absl::Now() < end) {
  }
}

class BusyBatches : public BatchRunner {
 public:
  int device() const override { return 0; }
  absl::Status WarmUp() override { return absl::OkStatus(); }
  absl::Status Run(const std::vector<const SequenceTask*>& sequences) override {
    Compute(sequences.size());
    return absl::OkStatus();
  }
};

class BusySteps : public StepRunner {
 public:
  absl::Status WarmUp() override { return absl::OkStatus(); }
  absl::Status Run(std::vector<StepShare>& shares) override {
    Compute(shares.size());
    for (StepShare& share : shares)
      static_cast<PuppetSequence*>(share.sequence)->Advance(share.rows);
    return absl::OkStatus();
  }
};

struct Task : SequenceTask {
  Task() { num_tokens = 3; }
};

struct OneCall {
  Task tasks[2];
  RequestHandle batch;
  SequenceHandle text;
  PuppetOutcome outcome;
  std::atomic<int> ends{0};
};

void Client(BatchSource& batches, StepSource& steps, int64_t calls, uint64_t seed,
            int64_t* cancelled) {
  std::mt19937_64 random(seed);
  const auto flow = std::make_shared<Flow>("client");
  std::deque<std::unique_ptr<OneCall>> open;
  const auto end = [&](OneCall& call) {
    // Whoever cancels may do so before, during and after the call.
    if (random() % 4 != 0) {
      if (call.batch != nullptr) batches.batcher().Cancel(call.batch);
      if (call.text != nullptr) steps.Cancel(call.text);
      ++*cancelled;
    }
    const absl::Time begin = absl::Now();
    const int expected = (call.batch != nullptr ? 1 : 0) + (call.text != nullptr ? 1 : 0);
    while (call.ends.load() < expected && absl::Now() - begin < absl::Seconds(30)) {
      std::this_thread::yield();
    }
    ASSERT_EQ(call.ends.load(), expected);
    const std::weak_ptr<PendingRequest> rest = call.batch;
    call.batch = nullptr;
    // The thread that answers it may be about to let go.
    while (!rest.expired() && absl::Now() - begin < absl::Seconds(30)) std::this_thread::yield();
    EXPECT_TRUE(rest.expired());
  };
  for (int64_t i = 0; i < calls; ++i) {
    auto call = std::make_unique<OneCall>();
    OneCall* const c = call.get();
    if (random() % 2 == 0) {
      BatchRequest request;
      for (const Task& task : c->tasks) request.sequences.push_back(&task);
      request.flow = flow;
      request.priority = static_cast<Priority>(random() % 3);
      request.done = [c](const absl::Status&, const RequestTimes&) { c->ends.fetch_add(1); };
      auto handle = batches.batcher().Submit(std::move(request));
      if (handle.ok()) c->batch = *std::move(handle);
    } else {
      PuppetSequence::Plan plan;
      plan.prompt = static_cast<int64_t>(1 + random() % 20);
      plan.tokens = static_cast<int>(1 + random() % 20);
      std::vector<SequenceRequest> requests(1);
      c->outcome.on_end = [c] { c->ends.fetch_add(1); };
      requests[0].sequence = std::make_unique<PuppetSequence>(plan, &c->outcome);
      requests[0].flow = flow;
      auto handles = steps.Submit(std::move(requests));
      if (handles.ok()) c->text = handles->front();
    }
    open.push_back(std::move(call));
    if (open.size() < kWindow) continue;
    const size_t which = random() % open.size();
    end(*open[which]);
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
  }
  for (const auto& call : open) end(*call);
}

TEST(CancelStormTest, NothingIsLeftAndNoWorkerSleepsBesideWork) {
  const RealClock clock;
  std::vector<std::unique_ptr<BatchRunner>> batch_runners;
  std::vector<std::unique_ptr<StepRunner>> step_runners;
  for (int i = 0; i < kWorkers; ++i) {
    batch_runners.push_back(std::make_unique<BusyBatches>());
    step_runners.push_back(std::make_unique<BusySteps>());
  }
  BatcherOptions batcher;
  batcher.max_batch_sequences = 8;
  WorkerPoolOptions pool_options;
  pool_options.workers = {kWorkers};
  WorkerPool pool(pool_options, &clock);
  WorkSourceOptions batch_options;
  batch_options.model = &batch_options;
  BatchSource batches(std::move(batch_runners), Batcher::Create(batcher, &clock).value(),
                      batch_options, &pool, &clock, nullptr);
  WorkSourceOptions step_options;
  step_options.model = &step_options;
  SchedulerOptions scheduler;
  scheduler.max_step_sequences = 16;
  scheduler.workers = {kWorkers};
  StepSource steps(std::move(step_runners), SequenceScheduler::Create(scheduler, &clock).value(),
                   absl::UnavailableError("drained"), step_options, &pool, &clock, nullptr);
  batches.Start();
  steps.Start();

  std::atomic<bool> over{false};
  std::thread watch([&] {
    absl::Time batches_since = absl::InfiniteFuture();
    absl::Time steps_since = absl::InfiniteFuture();
    while (!over.load()) {
      const absl::Time now = absl::Now();
      const BatcherStats queue = batches.batcher().stats();
      const bool forgotten = queue.queued_sequences > 0 && queue.running_batches == 0;
      batches_since = forgotten ? std::min(batches_since, now) : absl::InfiniteFuture();
      const StepStats texts = steps.stats();
      const bool idle = texts.running + texts.waiting > 0 && texts.running_steps == 0;
      steps_since = idle ? std::min(steps_since, now) : absl::InfiniteFuture();
      ASSERT_LT(now - batches_since, kForgotten);
      ASSERT_LT(now - steps_since, kForgotten);
      absl::SleepFor(absl::Milliseconds(1));
    }
  });
  std::vector<std::thread> clients;
  std::vector<int64_t> cancelled(kClients);
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back(
        [&, i] { Client(batches, steps, Calls() / kClients, 20 + i, &cancelled[i]); });
  }
  for (std::thread& client : clients) client.join();
  over = true;
  watch.join();
  for (const int64_t count : cancelled) EXPECT_GT(count, Calls() / kClients / 2);
  const BatcherStats queue = batches.batcher().stats();
  EXPECT_EQ(queue.queued_sequences + queue.queued_tokens, 0);
  EXPECT_GT(queue.cancelled, 0);
  const StepStats texts = steps.stats();
  EXPECT_EQ(texts.running + texts.waiting + texts.paused + texts.waiting_rows, 0);
  EXPECT_GT(texts.cancelled, 0);
}

}  // namespace
}  // namespace sru::server::batching
