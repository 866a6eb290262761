// Many real threads submit, cancel, run out of time, compute and stop at random. Each accepted
// request must be answered exactly once, with one status that can be explained, before the batcher
// goes. Meant for the thread sanitizer as much as for its assertions.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gtest/gtest.h"
#include "server/base/clock.h"
#include "server/batching/queue/batcher.h"
#include "tests/testing/puppet_engine.h"

namespace sru::server::batching {
namespace {

constexpr int kSubmitters = 4;
constexpr int kWorkers = 3;
constexpr int kRequestsPerSubmitter = 3000;

uint64_t Seed() {
  const char* seed = std::getenv("SRU_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 20180902;
}

// The outcome of one request. Shared, because its answer may come after Submit() has returned.
struct Outcome {
  std::atomic<int> answers{0};
  std::atomic<int> code{-1};
  bool accepted = false;
};

enum class Stop {
  kServeAll,  // Close(), then the workers serve the rest
  kAbort,     // Close() and Abort() in the middle of it
};

struct Totals {
  int64_t accepted = 0;
  int64_t ok = 0;
  int64_t expired = 0;
  int64_t cancelled = 0;
  int64_t failed = 0;
  int64_t aborted = 0;
};

// Waits for the next batch; null once the batcher is done. Looks only when the batcher says so.
std::unique_ptr<Batch> TakeBatch(Batcher& batcher, Bell& bell) {
  while (true) {
    const int64_t rings = bell.rings();
    std::unique_ptr<Batch> batch = batcher.TryTakeBatch();
    if (batch != nullptr) {
      if (batch->left_some) bell.Ring();
      return batch;
    }
    if (batcher.IsDone()) {
      bell.Ring();  // the last batch may have been this worker's
      return nullptr;
    }
    bell.WaitBeyond(rings, batcher.Next(absl::Now()).at);
  }
}

// "Computes" for as long as the tokens say and finishes with an error now and then.
void Work(Batcher& batcher, Bell& bell, uint64_t seed) {
  std::mt19937_64 random(seed);
  while (std::unique_ptr<Batch> batch = TakeBatch(batcher, bell)) {
    const absl::Time start = absl::Now();
    EXPECT_FALSE(batch->sequences.empty());
    int tokens = 0;
    for (const SequenceTask* sequence : batch->sequences) {
      tokens += sequence->num_tokens;
      *TaskOf(sequence).result = static_cast<float>(TaskOf(sequence).token_ids[0]);
    }
    EXPECT_EQ(tokens, batch->num_tokens);
    absl::Status status;
    const uint64_t dice = random() % 64;
    if (dice == 0) status = absl::InternalError("broken");
    if (dice == 1)
      batch->failures.emplace_back(random() % batch->sequences.size(),
                                   absl::InternalError("poison"));
    if (dice < 4) std::this_thread::yield();
    batcher.Finish(std::move(batch), status, absl::Now() - start);
  }
}

Totals RunStress(uint64_t seed, const BatcherOptions& options, Stop stop) {
  SCOPED_TRACE(absl::StrCat("SRU_TEST_SEED=", seed));
  RealClock clock;
  auto created = Batcher::Create(options, &clock);
  EXPECT_TRUE(created.ok()) << created.status();
  std::unique_ptr<Batcher> batcher = *std::move(created);
  Bell bell;
  batcher->OnWork([&bell] { bell.Ring(); }, [] { return false; });

  std::vector<std::vector<std::unique_ptr<Outcome>>> outcomes(kSubmitters);
  std::atomic<int> submitted{0};
  std::vector<std::thread> submitters;
  for (int s = 0; s < kSubmitters; ++s) {
    for (int i = 0; i < kRequestsPerSubmitter; ++i) {
      outcomes[s].push_back(std::make_unique<Outcome>());
    }
    submitters.emplace_back([&, s] {
      std::mt19937_64 random(seed + 100 + s);
      std::vector<RequestHandle> handles;
      for (int i = 0; i < kRequestsPerSubmitter; ++i) {
        Outcome* const outcome = outcomes[s][i].get();
        std::vector<int> lengths(random() % 5 == 0 ? 1 + random() % 8 : 1);
        for (int& length : lengths) length = 1 + static_cast<int>(random() % 40);
        // Stands for the buffers of an RPC; freed with the callback.
        auto buffers = std::make_shared<std::vector<float>>(lengths.size(), -1.0f);
        BatchRequest request = MakeRequest(i, lengths, buffers->data());
        request.priority = static_cast<Priority>(random() % 3);
        if (random() % 2 == 0) {
          request.deadline = absl::Now() + absl::Microseconds(random() % 5000);
        }
        request.done = [outcome, buffers, i](const absl::Status& status,
                                             const RequestTimes& times) {
          outcome->answers.fetch_add(1);
          outcome->code.store(static_cast<int>(status.code()));
          EXPECT_GE(times.queue, absl::ZeroDuration());
          if (!status.ok()) return;
          for (float value : *buffers) EXPECT_EQ(value, static_cast<float>(i));
        };
        absl::StatusOr<RequestHandle> handle = batcher->Submit(std::move(request));
        submitted.fetch_add(1);
        if (handle.ok()) {
          outcome->accepted = true;
          handles.push_back(*std::move(handle));
        } else {
          EXPECT_TRUE(request.done);  // NOLINT: not consumed
        }
        if (random() % 4 == 0 && !handles.empty()) {
          const size_t index = random() % handles.size();
          batcher->Cancel(handles[index]);
          if (random() % 2 == 0) batcher->Cancel(handles[index]);
        }
        if (random() % 256 == 0) std::this_thread::yield();
      }
    });
  }
  std::vector<std::thread> workers;
  for (int w = 0; w < kWorkers; ++w) {
    workers.emplace_back([&, w] { Work(*batcher, bell, seed + 200 + w); });
  }
  std::atomic<bool> over{false};
  std::thread sweeper([&] {
    while (!over.load()) {
      // Answers what has expired.
      EXPECT_EQ(batcher->TryTakeBatchWithin({0, 0}, /*strictly=*/true), nullptr);
      const BatcherStats stats = batcher->stats();
      EXPECT_GE(stats.queued_tokens, stats.queued_sequences);
      EXPECT_LE(stats.queued_tokens, options.max_queue_tokens);
      EXPECT_LE(stats.queued_sequences, options.max_queue_sequences);
      EXPECT_LE(stats.running_batches, kWorkers);
      std::this_thread::yield();
    }
  });

  if (stop == Stop::kAbort) {
    while (submitted.load() < kSubmitters * kRequestsPerSubmitter / 2) std::this_thread::yield();
    batcher->Close();
    batcher->Abort(absl::UnavailableError("out of time"));
  }
  for (std::thread& thread : submitters) thread.join();
  batcher->Close();
  for (std::thread& thread : workers) thread.join();
  over.store(true);
  sweeper.join();

  const BatcherStats stats = batcher->stats();
  EXPECT_EQ(stats.queued_sequences, 0);
  EXPECT_EQ(stats.queued_tokens, 0);
  EXPECT_EQ(stats.running_batches, 0);
  batcher.reset();

  Totals totals;
  for (const auto& list : outcomes) {
    for (const auto& outcome : list) {
      EXPECT_EQ(outcome->answers.load(), outcome->accepted ? 1 : 0);
      if (!outcome->accepted) continue;
      ++totals.accepted;
      switch (static_cast<absl::StatusCode>(outcome->code.load())) {
        case absl::StatusCode::kOk:
          ++totals.ok;
          break;
        case absl::StatusCode::kDeadlineExceeded:
          ++totals.expired;
          break;
        case absl::StatusCode::kCancelled:
          ++totals.cancelled;
          break;
        case absl::StatusCode::kInternal:
          ++totals.failed;
          break;
        case absl::StatusCode::kUnavailable:
          ++totals.aborted;
          break;
        default:
          ADD_FAILURE() << "code " << outcome->code.load();
      }
    }
  }
  // A request that had failed in part cannot leave the queue again, so these agree exactly.
  EXPECT_EQ(totals.expired, stats.expired);
  EXPECT_EQ(totals.cancelled, stats.cancelled);
  return totals;
}

BatcherOptions SmallQueue() {
  BatcherOptions options;
  options.max_batch_tokens = 64;
  options.max_batch_sequences = 8;
  options.max_queue_tokens = 2000;
  options.max_queue_sequences = 100;
  options.ageing_interval = absl::Milliseconds(1);
  options.max_passes = 2;
  options.num_workers = kWorkers;
  return options;
}

TEST(BatcherStressTest, EachRequestIsAnsweredOnce) {
  const Totals totals = RunStress(Seed(), SmallQueue(), Stop::kServeAll);
  EXPECT_GT(totals.ok, 0);
  EXPECT_GT(totals.cancelled, 0);
  EXPECT_EQ(totals.aborted, 0);
}

TEST(BatcherStressTest, WithAQueueThatWaitsForMore) {
  BatcherOptions options = SmallQueue();
  options.max_queue_delay = absl::Microseconds(200);
  const Totals totals = RunStress(Seed() + 1, options, Stop::kServeAll);
  EXPECT_GT(totals.ok, 0);
}

TEST(BatcherStressTest, WithoutAdmissionByDeadline) {
  BatcherOptions options = SmallQueue();
  options.admission_by_deadline = false;
  options.max_queue_tokens = 200000;
  options.max_queue_sequences = 20000;
  const Totals totals = RunStress(Seed() + 2, options, Stop::kServeAll);
  EXPECT_GT(totals.ok, 0);
}

TEST(BatcherStressTest, StopsInTheMiddle) {
  for (int i = 0; i < 4; ++i) {
    const Totals totals = RunStress(Seed() + 10 + i, SmallQueue(), Stop::kAbort);
    EXPECT_GT(totals.accepted, 0);
  }
}

// A sleeping worker is woken whichever way work or the end comes.
TEST(BatcherStressTest, NoWakeUpIsLost) {
  RealClock clock;
  for (absl::Duration delay : {absl::ZeroDuration(), absl::Microseconds(50)}) {
    BatcherOptions options = SmallQueue();
    options.max_queue_delay = delay;
    auto created = Batcher::Create(options, &clock);
    ASSERT_TRUE(created.ok()) << created.status();
    Batcher& batcher = **created;
    Bell bell;
    batcher.OnWork([&bell] { bell.Ring(); }, [] { return false; });
    std::vector<std::thread> workers;
    for (int w = 0; w < kWorkers; ++w) {
      workers.emplace_back([&batcher, &bell, w] {
        while (std::unique_ptr<Batch> batch = TakeBatch(batcher, bell)) {
          for (const SequenceTask* sequence : batch->sequences) *TaskOf(sequence).result = 0;
          batcher.Finish(std::move(batch), absl::OkStatus(), absl::Microseconds(w));
        }
      });
    }
    // One call after the other: a lost wake-up would hang here.
    std::vector<std::thread> callers;
    for (int c = 0; c < 2; ++c) {
      callers.emplace_back([&batcher] {
        for (int i = 0; i < 2000; ++i) {
          float result = 0;
          Mutex mutex;
          CondVar changed;
          bool done = false;
          BatchRequest request = MakeRequest(i, {3}, &result);
          request.done = [&](const absl::Status& status, const RequestTimes&) {
            EXPECT_TRUE(status.ok()) << status;
            MutexLock lock(&mutex);
            done = true;
            changed.Signal();
          };
          EXPECT_TRUE(batcher.Submit(std::move(request)).ok());
          MutexLock lock(&mutex);
          while (!done) changed.Wait(&mutex);
        }
      });
    }
    for (std::thread& thread : callers) thread.join();
    batcher.Close();
    for (std::thread& thread : workers) thread.join();
  }
}

}  // namespace
}  // namespace sru::server::batching
