// Admission by deadline: what is refused because it could not finish in time, rule by rule and
// under floods in fake time.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"
#include "server/batching/queue/batcher.h"
#include "tests/testing/batcher_fixture.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/puppet_engine.h"

namespace sru::server::batching {
namespace {

using ::testing::HasSubstr;

TEST_F(BatcherTest, NothingIsRefusedBeforeASpeedIsKnown) {
  Start();
  for (int i = 0; i < 10; ++i) Accept(i, {100}, Priority::kNormal, absl::Microseconds(1));
}

// CheckAdmission() refuses by the same rules, counts the refusal and leaves nothing behind.
TEST_F(BatcherTest, CheckAdmissionSaysWhatSubmitWould) {
  options_.max_batch_tokens = 10;
  Start();
  const auto check = [this](int num_sequences, absl::Duration timeout) {
    return batcher_->CheckAdmission(num_sequences, num_sequences, Priority::kNormal,
                                    clock_.Now() + timeout);
  };
  EXPECT_TRUE(check(100, absl::InfiniteDuration()).ok());
  EXPECT_EQ(check(1, -Ms(1)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(batcher_->stats().queued_sequences, 0);

  Learn(10, Ms(10), 4);  // 1 ms per token
  Accept(1, {10});
  EXPECT_TRUE(puppet_->Take());
  for (int i = 2; i < 6; ++i) Accept(i, {10}, Priority::kHigh);
  EXPECT_TRUE(check(1, absl::Seconds(10)).ok());
  const absl::Status late = check(1, Ms(40));  // 10 ms run, 40 ms wait
  EXPECT_EQ(late.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetRejectReason(late), RejectReason::kDeadline);
  EXPECT_GT(RetryAfterOf(late).value(), absl::ZeroDuration());
  EXPECT_EQ(batcher_->stats().rejected[RejectReason::kDeadline], 1);

  const absl::Status full = check(97, absl::InfiniteDuration());  // 4 of 100 wait
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetRejectReason(full), RejectReason::kQueueFull);
  EXPECT_TRUE(check(96, absl::InfiniteDuration()).ok());
  EXPECT_EQ(batcher_->stats().rejected[RejectReason::kQueueFull], 1);
  EXPECT_EQ(batcher_->stats().queued_sequences, 4);

  batcher_->Close();
  const absl::Status closed = check(1, absl::InfiniteDuration());
  EXPECT_EQ(closed.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetRejectReason(closed), RejectReason::kDraining);
}

TEST_F(BatcherTest, RefusesWhatCannotFinishInTime) {
  options_.max_batch_tokens = 10;
  Start();
  Learn(10, Ms(10), 4);  // 1 ms per token
  Accept(1, {10});
  EXPECT_TRUE(puppet_->Take());
  for (int i = 2; i < 6; ++i) Accept(i, {10}, Priority::kHigh);
  // 10 ms are running, 40 ms are waiting, 10 ms are its own.
  const absl::Status status = Submit(6, {10}, Priority::kNormal, Ms(55));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kDeadline);
  EXPECT_THAT(Text(status), HasSubstr("the deadline cannot be kept"));
  EXPECT_EQ(batcher_->stats().rejected[RejectReason::kDeadline], 1);
  EXPECT_EQ(retry_after_, Ms(64));  // 50 ms are ahead
  // It is accepted with less work ahead of it or with more time: the margin is modest.
  Accept(7, {10}, Priority::kHigh, Ms(55));
  Accept(8, {10}, Priority::kNormal, Ms(110));
}

TEST_F(BatcherTest, CountsWhatHasRunOfTheRunningBatch) {
  options_.max_batch_tokens = 10;
  Start();
  Learn(10, Ms(10), 4);
  Accept(1, {10});
  EXPECT_TRUE(puppet_->Take());
  EXPECT_FALSE(Submit(2, {10}, Priority::kNormal, Ms(16)).ok());
  clock_.Advance(Ms(9));
  Accept(3, {10}, Priority::kNormal, Ms(16));
}

TEST_F(BatcherTest, TheWorkersThatAreLeftShareWhatIsAhead) {
  options_.max_batch_tokens = 10;
  options_.num_workers = 4;
  Start();
  Learn(10, Ms(10), 4);
  for (int i = 0; i < 4; ++i) {
    Accept(i, {10});
    EXPECT_TRUE(puppet_->Take());
  }
  for (int i = 4; i < 12; ++i) Accept(i, {10}, Priority::kHigh);
  EXPECT_FALSE(Submit(19, {10}, Priority::kNormal, Ms(35)).ok());  // 40/4 + 80/4 + 10
  Accept(20, {10}, Priority::kNormal, Ms(60));
  batcher_->SetNumWorkers(2);
  EXPECT_FALSE(Submit(21, {10}, Priority::kNormal, Ms(60)).ok());  // 40/2 + 90/2 + 10
  Accept(22, {10}, Priority::kNormal, Ms(120));
}

TEST_F(BatcherTest, PredictionsCountTheWaitForACore) {
  options_.max_batch_tokens = 10;
  Start();
  for (int i = 0; i < 4; ++i) {
    Accept(i, {10});
    EXPECT_TRUE(puppet_->Take());
    clock_.Advance(Ms(30));
    puppet_->running(0).StartLater(Ms(30));
    puppet_->Finish(absl::OkStatus(), Ms(10));
  }
  Accept(10, {10});
  EXPECT_TRUE(puppet_->Take());
  for (int i = 11; i < 13; ++i) Accept(i, {10}, Priority::kHigh);
  // 40 ms until the running batch is done, 80 ms for those that wait, 40 ms for its own.
  EXPECT_EQ(GetRejectReason(Submit(13, {10}, Priority::kNormal, Ms(150))), RejectReason::kDeadline);
  EXPECT_EQ(retry_after_, Ms(128));  // 120 ms are ahead
  Accept(14, {10}, Priority::kNormal, Ms(240));
}

// Where calls come faster than they are answered, each may wait for a quarter of its time; in a
// burst, for all of it.
TEST_F(BatcherTest, AQueueThatStandsIsShort) {
  options_.max_batch_tokens = 10;
  Start();
  Learn(10, Ms(10), 4);
  const auto fill = [this](int first) {  // 10 ms run, 50 ms wait
    Accept(first, {10});
    EXPECT_TRUE(puppet_->Take());
    for (int i = 1; i < 6; ++i) Accept(first + i, {10}, Priority::kNormal, Ms(250));
  };
  fill(1);
  Accept(7, {10}, Priority::kLow, Ms(120));
  clock_.Advance(kStanding + Ms(1));
  EXPECT_EQ(GetRejectReason(Submit(8, {10}, Priority::kNormal, Ms(160))), RejectReason::kDeadline);
  Accept(9, {10}, Priority::kNormal, Ms(300));
  Accept(10, {10}, Priority::kHigh, Ms(50));  // nothing is ahead of it

  // The queue stands until an arrival finds a free worker.
  puppet_->Finish(absl::OkStatus(), Ms(10));
  while (puppet_->Take()) puppet_->Finish(absl::OkStatus(), Ms(10));
  fill(11);
  Accept(17, {10}, Priority::kNormal, Ms(260));
}

TEST_F(BatcherTest, AnIdleModelNeverRefuses) {
  options_.max_batch_tokens = 10;
  options_.num_workers = 2;
  Start();
  Learn(10, absl::Seconds(10), 8);
  Accept(1, {10}, Priority::kNormal, Ms(1));
  EXPECT_TRUE(puppet_->Take());
  Accept(2, {10}, Priority::kNormal, Ms(1));  // a worker is still free
  EXPECT_TRUE(puppet_->Take());
  EXPECT_EQ(GetRejectReason(Submit(3, {10}, Priority::kNormal, Ms(1))), RejectReason::kDeadline);
}

TEST_F(BatcherTest, AdmissionByDeadlineCanBeSwitchedOff) {
  options_.max_batch_tokens = 10;
  options_.admission_by_deadline = false;
  Start();
  Learn(10, absl::Seconds(10), 8);
  for (int i = 0; i < 5; ++i) Accept(i, {10}, Priority::kNormal, Ms(1));
  clock_.Advance(Ms(1));
}

TEST_F(BatcherTest, OneSlowBatchDoesNotCount) {
  options_.max_batch_tokens = 10;
  Start();
  const auto accepts = [this](int32_t name) {
    Accept(name, {10});
    EXPECT_TRUE(puppet_->Take());
    const bool accepted = Submit(name + 1, {10}, Priority::kNormal, Ms(30)).ok();
    puppet_->RunAll(Ms(10));
    return accepted;
  };
  Learn(10, absl::Seconds(5), 1);  // cold
  Learn(10, Ms(10), 1);
  EXPECT_TRUE(accepts(1));
  Learn(10, absl::Seconds(5), 1);
  Learn(10, Ms(10), 2);
  EXPECT_TRUE(accepts(3));
}

TEST_F(BatcherTest, LearnsALastingChangeInBothDirections) {
  options_.max_batch_tokens = 10;
  Start();
  const auto accepts = [this](int32_t name) {
    Accept(name, {10});
    EXPECT_TRUE(puppet_->Take());
    const bool accepted = Submit(name + 1, {10}, Priority::kNormal, Ms(30)).ok();
    // The batch fails, so that nothing is learnt from it.
    puppet_->Finish(absl::InternalError("not learnt from"));
    puppet_->TakeNames();
    while (puppet_->num_running() > 0) puppet_->Finish(absl::InternalError("nor this"));
    return accepted;
  };
  Learn(10, Ms(10), 40);
  EXPECT_TRUE(accepts(1));
  Learn(10, Ms(100), 40);
  EXPECT_FALSE(accepts(3));
  Learn(10, Ms(10), 40);
  EXPECT_TRUE(accepts(5));
}

// A machine in fake time under an open loop of requests: arrivals by a Poisson process, `workers`
// that need fixed + per_token * tokens seconds (with noise) and, what the batcher is not told,
// `hidden` times as long again before they ask for the next batch.
struct Flood {
  double saturation = 0;  // requests per second
  double goodput = 0;     // answered OK within the deadline, per second of the flood
  double p99 = 0;         // of what was accepted, seconds
  double p99_after = 0;   // of what arrived from one second after the flood
  int64_t late = 0;       // accepted, but not OK within the deadline
};

Flood RunFlood(double load, double hidden, absl::Duration deadline, bool mixed_lengths) {
  constexpr int kWorkers = 2;
  constexpr double kFixed = 500e-6;
  constexpr double kPerToken = 20e-6;
  constexpr double kCalmLoad = 0.3;  // before the flood and after it
  constexpr double kFloodStart = 0.5;
  constexpr double kFloodSeconds = 4;
  constexpr double kFloodEnd = kFloodStart + kFloodSeconds;
  FakeClock clock;
  const absl::Time start = clock.Now();
  BatcherOptions options;
  options.max_batch_tokens = 512;
  options.num_workers = kWorkers;
  auto created = Batcher::Create(options, &clock);
  EXPECT_TRUE(created.ok());
  Batcher& batcher = **created;
  std::mt19937_64 random(Seed());

  Flood flood;
  flood.saturation = kWorkers / ((kFixed + kPerToken * 512) * (1 + hidden)) * 512 / 10;
  std::vector<double> latencies;
  std::vector<double> after;
  int64_t good = 0;
  struct Worker {
    std::unique_ptr<Batch> batch;
    double compute = 0;
    double free_at = 0;  // when the batch ends, or the worker asks again
  };
  std::vector<Worker> workers(kWorkers);
  double now = 0;
  double next_arrival = 0;
  bool over = false;
  const auto finished = [&](double arrival, const absl::Status& status) {
    if (over) return;
    const double latency = now - arrival;
    const bool in_flood = arrival >= kFloodStart && arrival < kFloodEnd;
    if (in_flood) latencies.push_back(latency);
    if (arrival > kFloodEnd + 1) after.push_back(latency);
    if (!status.ok() || latency > absl::ToDoubleSeconds(deadline)) {
      ++flood.late;
    } else if (in_flood) {
      ++good;
    }
  };
  while (now < kFloodEnd + 2) {
    now = next_arrival;
    Worker* busy = nullptr;
    for (Worker& worker : workers) {
      if (worker.free_at <= now) {
        busy = &worker;
        now = worker.free_at;
      }
    }
    clock.Set(start + absl::Seconds(now));
    if (busy != nullptr) {
      if (busy->batch != nullptr) {
        batcher.Finish(std::move(busy->batch), absl::OkStatus(), absl::Seconds(busy->compute));
        busy->free_at = now + hidden * busy->compute;
        continue;
      }
      busy->batch = batcher.TryTakeBatch();
      if (busy->batch == nullptr) {
        // The worker is idle until there is something to take.
        busy->free_at = std::max(now + 1e-9, next_arrival);
        continue;
      }
      std::normal_distribution<double> noise(0, 0.1);
      busy->compute = (kFixed + kPerToken * busy->batch->num_tokens) * std::exp(noise(random));
      busy->free_at = now + busy->compute;
      continue;
    }
    int length = 10;
    if (mixed_lengths) length = random() % 10 == 0 ? 55 : 5;
    BatchRequest request = MakeRequest(1, {length});
    request.deadline = clock.Now() + deadline;
    const double arrival = now;
    request.done = [&finished, arrival](const absl::Status& status, const RequestTimes&) {
      finished(arrival, status);
    };
    batcher.Submit(std::move(request)).IgnoreError();
    const bool in_flood = now >= kFloodStart && now < kFloodEnd;
    const double rate = flood.saturation * (in_flood ? load : kCalmLoad);
    next_arrival = now + std::exponential_distribution<double>(rate)(random);
  }
  over = true;
  for (Worker& worker : workers) {
    if (worker.batch != nullptr) {
      batcher.Finish(std::move(worker.batch), absl::OkStatus(), absl::ZeroDuration());
    }
  }
  batcher.Abort(absl::UnavailableError("end"));
  const auto p99 = [](std::vector<double>& values) {
    EXPECT_FALSE(values.empty());
    std::sort(values.begin(), values.end());
    return values[values.size() * 99 / 100];
  };
  flood.goodput = good / kFloodSeconds;
  flood.p99 = p99(latencies);
  flood.p99_after = p99(after);
  return flood;
}

TEST(FloodTest, AtThreeTimesSaturationGoodputStaysAndTheAcceptedAreInTime) {
  for (absl::Duration deadline : {Ms(60), Ms(200), Ms(1000)}) {
    for (double hidden : {0.0, 0.25}) {
      for (bool mixed : {false, true}) {
        SCOPED_TRACE(absl::StrCat("deadline ", absl::FormatDuration(deadline), " hidden ", hidden,
                                  " mixed ", mixed));
        const Flood flood = RunFlood(3, hidden, deadline, mixed);
        EXPECT_GE(flood.goodput, 0.9 * flood.saturation);
        EXPECT_LE(flood.p99, absl::ToDoubleSeconds(deadline));
        // At three tenths of saturation a backlog of a second takes longer than one to drain.
        if (deadline < absl::Seconds(1)) {
          EXPECT_LE(flood.p99_after, 0.05);
        }
      }
    }
  }
}

TEST(FloodTest, BelowSaturationNothingIsRefusedOrLate) {
  const Flood flood = RunFlood(0.7, 0, Ms(200), true);
  EXPECT_EQ(flood.late, 0);
  EXPECT_NEAR(flood.goodput, 0.7 * flood.saturation, 0.03 * flood.saturation);
}

}  // namespace
}  // namespace sru::server::batching
