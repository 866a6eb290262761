// The batcher's rules, one by one, with a fake clock and a puppet engine: no threads, no sleeps.
#include "server/batching/batcher.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/speed_model.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/puppet_engine.h"

namespace sru::server {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Duration Ms(double ms) { return absl::Milliseconds(ms); }

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// The seed of the random tests; the environment variable repeats a run.
uint64_t Seed() {
  const char* seed = std::getenv("SRU_TEST_SEED");
  return seed != nullptr ? std::strtoull(seed, nullptr, 10) : 20180901;
}

// Has expired requests answered, as a worker does that looks for work, without taking any.
void AnswerExpired(Batcher& batcher) {
  const std::atomic<bool> leave{true};
  EXPECT_EQ(batcher.TakeBatch(&leave), nullptr);
}

class BatcherTest : public ::testing::Test {
 protected:
  struct Answer {
    absl::Status status;
    RequestTimes times;
  };

  BatcherTest() {
    options_.max_batch_tokens = 100;
    options_.max_batch_sequences = 10;
    options_.max_queue_tokens = 1000;
    options_.max_queue_sequences = 100;
    options_.ageing_interval = Ms(500);
  }

  // What waits and runs is served, so that each test ends with the books balanced.
  void TearDown() override {
    if (batcher_ == nullptr) return;
    batcher_->Close();
    puppet_->RunAll();
    const BatcherStats stats = batcher_->stats();
    EXPECT_EQ(stats.queued_sequences, 0);
    EXPECT_EQ(stats.queued_tokens, 0);
    EXPECT_EQ(stats.running_batches, 0);
    EXPECT_EQ(stats.oldest_age, absl::ZeroDuration());
    for (const auto& [name, handle] : handles_) {
      EXPECT_EQ(answers_[name].size(), 1u) << "request " << name;
    }
  }

  void Start() {
    auto batcher = Batcher::Create(options_, &clock_);
    ASSERT_TRUE(batcher.ok()) << batcher.status();
    batcher_ = *std::move(batcher);
    puppet_ = std::make_unique<PuppetEngine>(batcher_.get(), &clock_);
  }

  absl::Status Submit(int32_t name, const std::vector<int>& lengths,
                      Priority priority = Priority::kNormal,
                      absl::Duration timeout = absl::InfiniteDuration()) {
    BatchRequest request = MakeRequest(name, lengths);
    request.priority = priority;
    request.deadline = clock_.Now() + timeout;
    request.done = [this, name](const absl::Status& status, const RequestTimes& times) {
      answers_[name].push_back({status, times});
    };
    retry_after_ = absl::ZeroDuration();
    absl::StatusOr<RequestHandle> handle = batcher_->Submit(std::move(request), &retry_after_);
    if (handle.ok()) {
      EXPECT_NE(*handle, nullptr);
      EXPECT_TRUE(request.sequences.empty());  // NOLINT: consumed
      handles_[name] = *handle;
    } else {  // not consumed
      EXPECT_EQ(request.sequences.size(), lengths.size());
      EXPECT_TRUE(request.done);
      EXPECT_THAT(answers_[name], IsEmpty());
    }
    return handle.status();
  }

  void Sweep() { AnswerExpired(*batcher_); }

  void Accept(int32_t name, const std::vector<int>& lengths, Priority priority = Priority::kNormal,
              absl::Duration timeout = absl::InfiniteDuration()) {
    const absl::Status status = Submit(name, lengths, priority, timeout);
    EXPECT_TRUE(status.ok()) << status;
  }

  bool answered(int32_t name) { return !answers_[name].empty(); }
  absl::StatusCode code(int32_t name) {
    EXPECT_EQ(answers_[name].size(), 1u) << "request " << name;
    return answers_[name].empty() ? absl::StatusCode::kUnknown : answers_[name][0].status.code();
  }

  // Runs `count` batches of one sequence each.
  void Learn(int tokens, absl::Duration compute, int count) {
    for (int i = 0; i < count; ++i) {
      Accept(next_learn_, {tokens});
      ASSERT_TRUE(puppet_->Take());
      puppet_->Finish(absl::OkStatus(), compute);
      EXPECT_EQ(code(next_learn_), absl::StatusCode::kOk);
      ++next_learn_;
    }
  }

  BatcherOptions options_;
  FakeClock clock_;
  std::unique_ptr<Batcher> batcher_;
  std::unique_ptr<PuppetEngine> puppet_;
  std::map<int32_t, std::vector<Answer>> answers_;
  std::map<int32_t, RequestHandle> handles_;
  absl::Duration retry_after_;
  int32_t next_learn_ = 1000000;
};

// Options ---------------------------------------------------------------------------------------

TEST_F(BatcherTest, CreateNamesTheOptionThatIsOutOfRange) {
  const auto error = [this](auto change) {
    BatcherOptions options;
    change(options);
    const absl::Status status = Batcher::Create(options, &clock_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return Text(status);
  };
  EXPECT_EQ(error([](BatcherOptions& o) { o.max_batch_tokens = 0; }),
            "max_batch_tokens: expected at least 1, found 0");
  EXPECT_EQ(error([](BatcherOptions& o) { o.max_batch_sequences = 0; }),
            "max_batch_sequences: expected at least 1, found 0");
  EXPECT_EQ(error([](BatcherOptions& o) { o.max_queue_delay = -Ms(1); }),
            "max_queue_delay: expected 0 or more, found -1ms");
  EXPECT_EQ(error([](BatcherOptions& o) { o.max_queue_tokens = o.max_batch_tokens - 1; }),
            "max_queue_tokens: expected at least max_batch_tokens (4096), found 4095");
  EXPECT_EQ(error([](BatcherOptions& o) { o.max_queue_sequences = 0; }),
            "max_queue_sequences: expected at least 1, found 0");
  EXPECT_EQ(error([](BatcherOptions& o) { o.ageing_interval = absl::ZeroDuration(); }),
            "ageing_interval: expected more than 0, found 0");
  EXPECT_EQ(error([](BatcherOptions& o) { o.max_passes = -1; }),
            "max_passes: expected 0 or more, found -1");
  EXPECT_EQ(error([](BatcherOptions& o) { o.num_workers = 0; }),
            "num_workers: expected at least 1, found 0");
}

// Refusals --------------------------------------------------------------------------------------

TEST_F(BatcherTest, RefusesWhatCanNeverRun) {
  Start();
  absl::Status status = Submit(1, {});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(status), "sequences: expected at least one, found none");
  EXPECT_EQ(GetRejectReason(status), std::nullopt);

  status = Submit(2, {5, 0});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(status), "sequences[1]: expected 1 to 100 tokens (max_batch_tokens), found 0");

  status = Submit(3, {5, 100, 101});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(status), "sequences[2]: expected 1 to 100 tokens (max_batch_tokens), found 101");

  // A retry could never succeed: not "queue full".
  status = Submit(4, std::vector<int>(101, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), HasSubstr("found 101 tokens in 101 sequences; split the request"));
  status = Submit(5, std::vector<int>(11, 100));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status), HasSubstr("found 1100 tokens in 11 sequences; split the request"));

  EXPECT_FALSE(puppet_->Take());
  const BatcherStats stats = batcher_->stats();
  for (const RejectReason reason : kRejectReasons) {
    EXPECT_EQ(stats.rejected[reason], 0) << Describe(reason).name;
  }
}

TEST_F(BatcherTest, RefusesWhatHasExpiredAlready) {
  Start();
  for (absl::Duration timeout : {absl::ZeroDuration(), Ms(-1), -absl::InfiniteDuration()}) {
    const absl::Status status = Submit(1, {5}, Priority::kNormal, timeout);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_EQ(Text(status), "the deadline had passed when the request was queued");
    EXPECT_EQ(GetRejectReason(status), std::nullopt);
  }
  EXPECT_EQ(batcher_->stats().expired, 0);
}

TEST_F(BatcherTest, RefusesOverTheBoundOnTokensWholeRequestsOnly) {
  Start();
  for (int i = 0; i < 9; ++i) Accept(i, {50, 50});
  Accept(9, {60});
  const absl::Status status = Submit(10, {1, 40});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kQueueFull);
  EXPECT_EQ(Text(status),
            "the queue is full: 960 of 1000 tokens and 19 of 100 sequences wait, the request has "
            "at least 41 tokens in 2 sequences; retry later");
  EXPECT_EQ(retry_after_, Ms(100));  // nothing was measured
  EXPECT_EQ(batcher_->stats().queued_tokens, 960);
  EXPECT_EQ(batcher_->stats().queued_sequences, 19);
  EXPECT_EQ(batcher_->stats().rejected[RejectReason::kQueueFull], 1);
  Accept(11, {40});
  EXPECT_EQ(Submit(12, {1}).code(), absl::StatusCode::kResourceExhausted);
  // What runs is not in the queue.
  EXPECT_TRUE(puppet_->Take());
  Accept(13, {100});
}

TEST_F(BatcherTest, RefusesOverTheBoundOnSequences) {
  Start();
  Accept(1, std::vector<int>(60, 1));
  Accept(2, std::vector<int>(39, 1));
  const absl::Status status = Submit(3, {1, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kQueueFull);
  EXPECT_THAT(Text(status), HasSubstr("99 of 100 sequences wait"));
  Accept(4, {1});
}

TEST_F(BatcherTest, RefusesWhenClosedAndServesWhatWasAccepted) {
  Start();
  Accept(1, {5});
  batcher_->Close();
  const absl::Status status = Submit(2, {5});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kDraining);
  EXPECT_EQ(Text(status), "the server is shutting down and takes no new requests");
  EXPECT_EQ(batcher_->stats().rejected[RejectReason::kDraining], 1);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  puppet_->Finish();
  EXPECT_EQ(code(1), absl::StatusCode::kOk);
  EXPECT_EQ(batcher_->TakeBatch(), nullptr);  // does not block: closed and empty
}

TEST_F(BatcherTest, StopAnswersWhatWaitsAndRefusesWhatComes) {
  options_.max_batch_sequences = 1;
  Start();
  Accept(1, {5});
  Accept(2, {5});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  batcher_->Stop(absl::UnavailableError("no device"));
  EXPECT_EQ(code(2), absl::StatusCode::kUnavailable);
  const absl::Status status = Submit(3, {5});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Text(status), "no device");
  EXPECT_EQ(GetRejectReason(status), RejectReason::kNoWorker);
  EXPECT_EQ(batcher_->stats().rejected[RejectReason::kNoWorker], 1);
  puppet_->Finish();  // what ran is answered as it ended
  EXPECT_EQ(code(1), absl::StatusCode::kOk);
  EXPECT_EQ(batcher_->TakeBatch(), nullptr);
}

TEST_F(BatcherTest, AWorkerThatLeavesTakesNothing) {
  Start();
  Accept(1, {5});
  const std::atomic<bool> leave{true};
  EXPECT_EQ(batcher_->TakeBatch(&leave), nullptr);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  puppet_->Finish();
}

// How a batch is filled -------------------------------------------------------------------------

TEST_F(BatcherTest, ABatchHoldsManyRequestsUpToTheTokenBudget) {
  Start();
  EXPECT_FALSE(puppet_->Take());
  for (int i = 1; i <= 4; ++i) Accept(i, {30});
  Accept(5, {10});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 2, 3, 5));  // 100 tokens; 4 does not fit
  EXPECT_EQ(puppet_->running(0).num_tokens(), 100);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(4));
  EXPECT_EQ(batcher_->stats().running_batches, 2);
}

TEST_F(BatcherTest, ABatchHoldsAtMostMaxBatchSequences) {
  Start();
  Accept(1, std::vector<int>(8, 1));
  Accept(2, std::vector<int>(8, 1));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 1, 1, 1, 1, 1, 1, 1, 2, 2));
  EXPECT_EQ(batcher_->stats().queued_sequences, 6);
  EXPECT_EQ(batcher_->stats().queued_tokens, 6);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2, 2, 2, 2, 2, 2));
}

TEST_F(BatcherTest, ARequestOverSeveralBatchesIsAnsweredOnceAfterTheLast) {
  Start();
  Accept(1, {90, 80, 20, 70});
  clock_.Advance(Ms(3));
  EXPECT_TRUE(puppet_->Take());
  EXPECT_EQ(puppet_->running(0).sequences()[0]->num_tokens, 90);
  clock_.Advance(Ms(4));
  EXPECT_TRUE(puppet_->Take());
  EXPECT_EQ(puppet_->running(1).num_tokens(), 100);  // 80 + 20
  clock_.Advance(Ms(5));
  EXPECT_TRUE(puppet_->Take());
  EXPECT_FALSE(puppet_->Take());
  puppet_->Finish(absl::OkStatus(), Ms(1), 2);
  puppet_->Finish(absl::OkStatus(), Ms(2), 0);
  EXPECT_FALSE(answered(1));
  puppet_->Finish(absl::OkStatus(), Ms(6), 0);  // the second batch ends last
  EXPECT_EQ(code(1), absl::StatusCode::kOk);
  EXPECT_EQ(answers_[1][0].times.queue, Ms(7));
  EXPECT_EQ(answers_[1][0].times.compute, Ms(6));
}

TEST_F(BatcherTest, ABatchLooksPastWhatDoesNotFitAlsoInsideOfARequest) {
  Start();
  Accept(1, {60});
  Accept(2, {50, 20, 45, 10});
  Accept(3, {10});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 2, 2, 3));
  EXPECT_EQ(puppet_->running(0).num_tokens(), 100);
  EXPECT_TRUE(puppet_->Take());
  EXPECT_THAT(puppet_->names(), ElementsAre(2, 2));
  EXPECT_EQ(puppet_->running(1).num_tokens(), 95);
}

TEST_F(BatcherTest, LooksPastABoundedNumberOfSequences) {
  options_.max_queue_tokens = 100000;
  Start();
  Accept(1, {60});
  for (int i = 0; i < kMaxLookPast - 1; ++i) Accept(100 + i, {50});
  Accept(2, {10});  // behind one less than the bound
  Accept(3, {50});
  Accept(4, {50});
  Accept(5, {10});  // behind one more
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 2));
}

TEST_F(BatcherTest, WhatWasOvertakenTooOftenGoesFirst) {
  options_.max_passes = 2;
  Start();
  Accept(1, {80});  // needs most of a batch
  for (int round = 0; round < 2; ++round) {
    // The higher priority takes the start of each batch, what comes after 1 takes the rest.
    Accept(10 + round, {50}, Priority::kHigh);
    Accept(20 + round, {50});
    EXPECT_THAT(puppet_->TakeNames(), ElementsAre(10 + round, 20 + round));
  }
  Accept(12, {50}, Priority::kHigh);
  Accept(22, {20});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 22));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(12));
}

TEST_F(BatcherTest, WaitingBehindOthersIsNotBeingOvertaken) {
  options_.max_passes = 1;
  Start();
  Accept(1, {80});
  Accept(10, {50}, Priority::kHigh);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(10));  // 1 did not fit, but nothing went past it
  Accept(11, {50}, Priority::kHigh);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(11));
  Accept(12, {50}, Priority::kHigh);
  Accept(2, {50});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(12, 2));
  Accept(13, {50}, Priority::kHigh);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
}

TEST_F(BatcherTest, OvertakenRequestsGoFirstInTheirOrderOfArrival) {
  options_.max_passes = 1;
  Start();
  Accept(1, {80});
  Accept(2, {90}, Priority::kNormal, Ms(50));
  Accept(3, {60}, Priority::kHigh);
  Accept(4, {10});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(3, 4));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
}

TEST_F(BatcherTest, MaxPassesZeroLooksPastNothing) {
  options_.max_passes = 0;
  Start();
  Accept(1, {60});
  Accept(2, {50});
  Accept(3, {10});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2, 3));
}

// Order -----------------------------------------------------------------------------------------

TEST_F(BatcherTest, OrderIsPriorityThenDeadlineThenArrival) {
  options_.max_batch_sequences = 1;
  Start();
  Accept(1, {1}, Priority::kLow, Ms(10));
  Accept(2, {1}, Priority::kNormal);
  Accept(3, {1}, Priority::kNormal, Ms(30));
  Accept(4, {1}, Priority::kNormal, Ms(20));
  Accept(5, {1}, Priority::kNormal);
  Accept(6, {1}, Priority::kHigh, Ms(90));
  Accept(7, {1}, Priority::kNormal, Ms(20));
  std::vector<int32_t> order;
  while (puppet_->Take()) order.push_back(puppet_->names()[0]);
  EXPECT_THAT(order, ElementsAre(6, 4, 7, 3, 2, 5, 1));
}

TEST_F(BatcherTest, AWaitingRequestRisesByOneLevelPerTick) {
  options_.max_batch_sequences = 1;
  Start();
  Accept(1, {1}, Priority::kLow);
  clock_.Advance(Ms(499));
  Accept(2, {1}, Priority::kNormal, absl::Seconds(9));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
  clock_.Advance(Ms(1));
  // Now of the normal level: the deadline decides.
  Accept(3, {1}, Priority::kNormal, absl::Seconds(9));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(3));
  clock_.Advance(Ms(500));
  Accept(4, {1}, Priority::kNormal, absl::Seconds(9));
  Accept(5, {1}, Priority::kHigh);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(5));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(4));
}

TEST_F(BatcherTest, TheLowestLevelMovesUnderAFloodOfTheHighest) {
  options_.max_batch_sequences = 1;
  options_.max_queue_sequences = 1000;
  options_.admission_by_deadline = false;
  Start();
  Accept(1, {1}, Priority::kLow);
  // More of the highest level than can be served, and all of them with a deadline.
  int32_t name = 1;
  while (!answered(1)) {
    ASSERT_LT(name, 320);
    for (int i = 0; i < 2; ++i) Accept(++name, {1}, Priority::kHigh, absl::Seconds(100));
    ASSERT_TRUE(puppet_->Take());
    puppet_->Finish(absl::OkStatus(), Ms(20));
  }
  // Those of the first three ticks, 50 each, go first; each takes a round, which brings two more.
  EXPECT_GT(name, 280);
}

TEST_F(BatcherTest, WithoutAgeingAnInfiniteIntervalIsTaken) {
  options_.ageing_interval = absl::InfiniteDuration();
  Start();
  Accept(1, {60}, Priority::kLow);
  clock_.Advance(absl::Hours(1));
  Accept(2, {60}, Priority::kNormal);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
}

// Deadlines and cancellation --------------------------------------------------------------------

TEST_F(BatcherTest, AnExpiredRequestLeavesBeforeCompute) {
  Start();
  Accept(1, {10}, Priority::kNormal, Ms(5));
  Accept(2, {10}, Priority::kNormal, Ms(6));
  clock_.Advance(Ms(5));  // the deadline itself is too late
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
  EXPECT_EQ(code(1), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Text(answers_[1][0].status), "the deadline passed after 5ms in the queue");
  EXPECT_EQ(answers_[1][0].times.queue, Ms(5));
  EXPECT_EQ(answers_[1][0].times.compute, absl::ZeroDuration());
  EXPECT_EQ(batcher_->stats().expired, 1);
  EXPECT_EQ(batcher_->stats().cancelled, 0);
  // What runs is computed, however late.
  clock_.Advance(Ms(50));
  Sweep();
  EXPECT_FALSE(answered(2));
  puppet_->Finish();
  EXPECT_EQ(code(2), absl::StatusCode::kOk);
  EXPECT_EQ(batcher_->stats().expired, 1);
}

TEST_F(BatcherTest, TakingNothingStillDropsWhatExpired) {
  Start();
  Accept(1, {10}, Priority::kNormal, Ms(5));
  clock_.Advance(Ms(6));
  EXPECT_FALSE(puppet_->Take());
  EXPECT_EQ(code(1), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(BatcherTest, TheExpiredAreAnsweredInWhateverOrderTheyWait) {
  Start();
  Sweep();
  Accept(1, {10}, Priority::kNormal, Ms(30));
  Accept(2, {10}, Priority::kHigh, Ms(20));
  Accept(3, {10}, Priority::kLow, Ms(10));
  Accept(4, {10});
  Sweep();
  EXPECT_EQ(batcher_->stats().expired, 0);
  clock_.Advance(Ms(20));
  Sweep();
  EXPECT_EQ(code(2), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(code(3), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(answered(1));
  clock_.Advance(Ms(10));
  Sweep();
  EXPECT_EQ(code(1), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(batcher_->stats().expired, 3);
  EXPECT_EQ(batcher_->stats().queued_sequences, 1);
}

TEST_F(BatcherTest, ARequestThatExpiresInPartIsAnsweredAfterWhatRuns) {
  Start();
  Accept(1, {80, 70, 60}, Priority::kNormal, Ms(5));
  EXPECT_TRUE(puppet_->Take());
  clock_.Advance(Ms(5));
  Sweep();
  EXPECT_EQ(batcher_->stats().queued_sequences, 0);
  EXPECT_EQ(batcher_->stats().expired, 1);
  EXPECT_FALSE(answered(1));
  puppet_->Finish();
  EXPECT_EQ(code(1), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(BatcherTest, ACancelledRequestLeavesAtOnce) {
  Start();
  Accept(1, {10, 20});
  Accept(2, {10});
  clock_.Advance(Ms(2));
  batcher_->Cancel(handles_[1]);
  EXPECT_EQ(code(1), absl::StatusCode::kCancelled);
  EXPECT_EQ(answers_[1][0].times.queue, Ms(2));
  EXPECT_EQ(batcher_->stats().queued_tokens, 10);
  EXPECT_EQ(batcher_->stats().cancelled, 1);
  EXPECT_EQ(batcher_->stats().expired, 0);
  batcher_->Cancel(handles_[1]);  // again: nothing
  batcher_->Cancel(nullptr);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
  batcher_->Cancel(handles_[2]);  // it runs: computed and answered as if nothing had been said
  EXPECT_FALSE(answered(2));
  puppet_->Finish();
  EXPECT_EQ(code(2), absl::StatusCode::kOk);
  batcher_->Cancel(handles_[2]);
  EXPECT_EQ(batcher_->stats().cancelled, 1);
}

TEST_F(BatcherTest, ARequestCancelledInPartIsAnsweredAfterWhatRuns) {
  Start();
  Accept(1, {80, 70, 60});
  EXPECT_TRUE(puppet_->Take());
  EXPECT_TRUE(puppet_->Take());
  batcher_->Cancel(handles_[1]);
  EXPECT_FALSE(puppet_->Take());
  puppet_->Finish();
  EXPECT_FALSE(answered(1));
  puppet_->Finish();
  EXPECT_EQ(code(1), absl::StatusCode::kCancelled);
}

TEST_F(BatcherTest, CancellingAnExpiredRequestIsAnExpiry) {
  Start();
  Accept(1, {10}, Priority::kNormal, Ms(5));
  clock_.Advance(Ms(5));
  batcher_->Cancel(handles_[1]);
  EXPECT_EQ(code(1), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(batcher_->stats().expired, 1);
  EXPECT_EQ(batcher_->stats().cancelled, 0);
}

TEST_F(BatcherTest, ACallbackMayUseTheBatcher) {
  Start();
  BatchRequest first = MakeRequest(1, {10});
  bool called = false;
  first.done = [&](const absl::Status&, const RequestTimes&) {
    called = true;
    Accept(2, {10});
    EXPECT_EQ(batcher_->stats().queued_tokens, 10);
  };
  ASSERT_TRUE(batcher_->Submit(std::move(first)).ok());
  EXPECT_TRUE(puppet_->Take());
  puppet_->Finish();
  EXPECT_TRUE(called);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
}

TEST_F(BatcherTest, WhatTheCallbackHoldsIsFreedWhileTheHandleIsKept) {
  Start();
  auto held = std::make_shared<int>(0);
  BatchRequest request = MakeRequest(1, {10});
  request.done = [held](const absl::Status&, const RequestTimes&) {};
  const absl::StatusOr<RequestHandle> handle = batcher_->Submit(std::move(request));
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(held.use_count(), 2);
  puppet_->RunAll();
  EXPECT_EQ(held.use_count(), 1);
}

// Errors of the forward pass --------------------------------------------------------------------

TEST_F(BatcherTest, AFailedBatchFailsItsRequestsOnly) {
  Start();
  Accept(1, {50});
  Accept(2, {50, 60, 70});
  Accept(3, {30});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 2));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2, 3));
  puppet_->Finish(absl::InternalError("broken"), Ms(1));
  EXPECT_EQ(code(1), absl::StatusCode::kInternal);
  EXPECT_EQ(Text(answers_[1][0].status), "broken");
  EXPECT_FALSE(answered(2));  // a part of it runs
  EXPECT_EQ(batcher_->stats().queued_sequences, 0);
  puppet_->Finish(absl::UnavailableError("too late to matter"));
  EXPECT_EQ(code(2), absl::StatusCode::kInternal);  // the first error
  EXPECT_EQ(code(3), absl::StatusCode::kUnavailable);
}

TEST_F(BatcherTest, ASequenceMayFailAlone) {
  Start();
  Accept(1, {10, 10});
  Accept(2, {10, 10});
  Accept(3, {10});
  EXPECT_TRUE(puppet_->Take());
  puppet_->running(0).Fail(3, absl::InvalidArgumentError("token 7"));
  puppet_->Finish();
  EXPECT_EQ(code(1), absl::StatusCode::kOk);
  EXPECT_EQ(code(2), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Text(answers_[2][0].status), "token 7");
  EXPECT_EQ(code(3), absl::StatusCode::kOk);
}

// max_queue_delay -------------------------------------------------------------------------------

TEST_F(BatcherTest, WaitsForMoreAtMostUntilTheOldestHasWaited) {
  options_.max_queue_delay = Ms(10);
  Start();
  Accept(1, {10});
  EXPECT_FALSE(puppet_->Take());
  clock_.Advance(Ms(9));
  Accept(2, {10}, Priority::kHigh);
  EXPECT_FALSE(puppet_->Take());
  clock_.Advance(Ms(1));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2, 1));
  Accept(3, {10});
  EXPECT_FALSE(puppet_->Take());
  batcher_->Cancel(handles_[3]);
  clock_.Advance(Ms(10));
  EXPECT_FALSE(puppet_->Take());
}

TEST_F(BatcherTest, AFullBatchDoesNotWait) {
  options_.max_queue_delay = Ms(10);
  Start();
  Accept(1, {60});
  EXPECT_FALSE(puppet_->Take());
  Accept(2, {40});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 2));
  Accept(3, std::vector<int>(9, 1));
  EXPECT_FALSE(puppet_->Take());
  Accept(4, {1});
  EXPECT_TRUE(puppet_->Take());
}

TEST_F(BatcherTest, NeitherADeadlineNorADrainIsLostToTheDelay) {
  options_.max_queue_delay = Ms(10);
  Start();
  Accept(1, {10});
  clock_.Advance(Ms(10));
  ASSERT_TRUE(puppet_->Take());
  puppet_->Finish(absl::OkStatus(), Ms(2));  // 10 tokens take 2 ms
  Accept(2, {10}, Priority::kNormal, Ms(6));
  EXPECT_FALSE(puppet_->Take());
  clock_.Advance(Ms(4));
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
  Accept(3, {10});
  EXPECT_FALSE(puppet_->Take());
  batcher_->Close();
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(3));
}

// Admission by deadline -------------------------------------------------------------------------

TEST_F(BatcherTest, NothingIsRefusedBeforeASpeedIsKnown) {
  Start();
  for (int i = 0; i < 10; ++i) Accept(i, {100}, Priority::kNormal, absl::Microseconds(1));
}

// What is asked beforehand is refused by the same rules, counted, and leaves nothing behind.
TEST_F(BatcherTest, CheckAdmissionSaysWhatSubmitWould) {
  options_.max_batch_tokens = 10;
  Start();
  const auto check = [this](int num_sequences, absl::Duration timeout) {
    retry_after_ = absl::ZeroDuration();
    return batcher_->CheckAdmission(num_sequences, Priority::kNormal, clock_.Now() + timeout,
                                    &retry_after_);
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
  EXPECT_GT(retry_after_, absl::ZeroDuration());
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
  // 10 ms run, 40 ms wait, 10 ms are its own.
  const absl::Status status = Submit(6, {10}, Priority::kNormal, Ms(55));
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kDeadline);
  EXPECT_THAT(Text(status), HasSubstr("the deadline cannot be kept"));
  EXPECT_THAT(Text(status), HasSubstr("its deadline is in 55ms; retry later"));
  EXPECT_EQ(batcher_->stats().rejected[RejectReason::kDeadline], 1);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(retry_after_), 50, 0.01);
  // Neither with less ahead of it, nor with more time: the margin is modest.
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

TEST_F(BatcherTest, WorkersShareWhatIsAhead) {
  options_.max_batch_tokens = 10;
  options_.num_workers = 4;
  Start();
  Learn(10, Ms(10), 4);
  for (int i = 0; i < 4; ++i) {
    Accept(i, {10});
    EXPECT_TRUE(puppet_->Take());
  }
  for (int i = 4; i < 12; ++i) Accept(i, {10}, Priority::kHigh);
  EXPECT_FALSE(Submit(20, {10}, Priority::kNormal, Ms(35)).ok());  // 40/4 + 80/4 + 10
  Accept(21, {10}, Priority::kNormal, Ms(60));
}

TEST_F(BatcherTest, PredictionsFollowTheWorkersThatAreLeft) {
  options_.max_batch_tokens = 10;
  options_.num_workers = 4;
  Start();
  Learn(10, Ms(10), 4);
  for (int i = 0; i < 4; ++i) {
    Accept(i, {10});
    EXPECT_TRUE(puppet_->Take());
  }
  for (int i = 4; i < 12; ++i) Accept(i, {10}, Priority::kHigh);
  Accept(20, {10}, Priority::kNormal, Ms(60));  // 40/4 + 80/4 + 10
  batcher_->SetNumWorkers(2);
  EXPECT_FALSE(Submit(21, {10}, Priority::kNormal, Ms(60)).ok());  // 40/2 + 90/2 + 10
  Accept(22, {10}, Priority::kNormal, Ms(120));
}

TEST_F(BatcherTest, AnIdleModelNeverRefuses) {
  options_.max_batch_tokens = 10;
  options_.num_workers = 2;
  Start();
  Learn(10, absl::Seconds(10), 8);
  Accept(1, {10}, Priority::kNormal, Ms(1));
  EXPECT_TRUE(puppet_->Take());
  Accept(2, {10}, Priority::kNormal, Ms(1));  // a worker is free still
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
    // Not finished with a time: the batch does not teach.
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

TEST(SpeedModelTest, TellsTheFixedPartFromTheTokens) {
  SpeedModel speed;
  EXPECT_FALSE(speed.known());
  for (int i = 0; i < 40; ++i) {
    const int tokens = 1 + (i * 37) % 400;
    speed.AddBatch(tokens, i % 7 == 0 ? 1.0 : 100e-6 + 2e-6 * tokens);  // one in seven is slow
  }
  EXPECT_TRUE(speed.known());
  EXPECT_NEAR(speed.Seconds(1000, 1), 100e-6 + 2000e-6, 20e-6);
  EXPECT_NEAR(speed.Seconds(1000, 5), 500e-6 + 2000e-6, 60e-6);
}

TEST(SpeedModelTest, IsProportionalWhileTheSizesAreAlike) {
  SpeedModel speed;
  for (int i = 0; i < 10; ++i) speed.AddBatch(10 + i % 2, 1e-3);
  EXPECT_NEAR(speed.Seconds(100, 1), 10e-3, 1e-3);
}

TEST(SpeedModelTest, NeverNegative) {
  SpeedModel speed;
  for (int tokens = 1; tokens < 60; ++tokens) speed.AddBatch(tokens, 1.0 / tokens);
  EXPECT_GE(speed.Seconds(1000, 1), speed.Seconds(1, 1));
  EXPECT_GT(speed.Seconds(1, 1), 0);
}

TEST(SpeedModelTest, TheMarginFollowsOutcomesWithinBounds) {
  SpeedModel speed;
  EXPECT_NEAR(speed.margin(), 1.25 * 1.1, 1e-9);
  speed.AddOutcome(1, 1000);  // an outlier
  EXPECT_NEAR(speed.margin(), 1.375 * 1.1, 1e-9);
  for (int i = 0; i < 30; ++i) speed.AddOutcome(1, i % 2 == 0 ? 1.5 : 2);
  EXPECT_GT(speed.margin(), 1.9 * 1.1);
  EXPECT_LE(speed.margin(), 2 * 1.1);
  for (int i = 0; i < 200; ++i) speed.AddOutcome(1, 1000);
  EXPECT_NEAR(speed.margin(), 8 * 1.1, 1e-9);
  for (int i = 0; i < 2000; ++i) speed.AddOutcome(1, 0.5);
  EXPECT_NEAR(speed.margin(), 1 * 1.1, 1e-9);
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
        // Idle until there is something to take.
        busy->free_at = std::max(now + 1e-9, next_arrival);
        continue;
      }
      std::normal_distribution<double> noise(0, 0.1);
      busy->compute = (kFixed + kPerToken * busy->batch->num_tokens()) * std::exp(noise(random));
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

// Abort, statistics, destruction ----------------------------------------------------------------

TEST_F(BatcherTest, AbortAnswersWhatWaitsAndLetsTheRestRun) {
  Start();
  Accept(1, {100});
  Accept(2, {90, 60});
  Accept(3, {100});
  EXPECT_TRUE(puppet_->Take());
  EXPECT_TRUE(puppet_->Take());
  batcher_->Close();
  batcher_->Abort(absl::UnavailableError("out of time"));
  EXPECT_EQ(code(3), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Text(answers_[3][0].status), "out of time");
  EXPECT_FALSE(answered(1));
  EXPECT_FALSE(answered(2));
  EXPECT_FALSE(puppet_->Take());
  puppet_->Finish();
  puppet_->Finish();
  EXPECT_EQ(code(1), absl::StatusCode::kOk);
  EXPECT_EQ(code(2), absl::StatusCode::kUnavailable);
}

TEST_F(BatcherTest, StatsFollowTheQueue) {
  Start();
  Accept(1, {10, 20});
  clock_.Advance(Ms(5));
  Accept(2, {80}, Priority::kHigh);
  BatcherStats stats = batcher_->stats();
  EXPECT_EQ(stats.queued_sequences, 3);
  EXPECT_EQ(stats.queued_tokens, 110);
  EXPECT_EQ(stats.oldest_age, Ms(5));
  EXPECT_EQ(stats.running_batches, 0);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2, 1));
  stats = batcher_->stats();
  EXPECT_EQ(stats.queued_sequences, 1);
  EXPECT_EQ(stats.queued_tokens, 20);
  EXPECT_EQ(stats.running_batches, 1);
  batcher_->Cancel(handles_[1]);
  EXPECT_EQ(batcher_->stats().oldest_age, absl::ZeroDuration());
}

TEST_F(BatcherTest, AClockThatIsSetBackDoesNoHarm) {
  Start();
  Accept(1, {10});
  clock_.Advance(-absl::Hours(1));
  Accept(2, {10});
  EXPECT_EQ(batcher_->stats().oldest_age, absl::ZeroDuration());
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 2));
}

using BatcherDeathTest = BatcherTest;

TEST_F(BatcherDeathTest, LosingARequestEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Start();
  Accept(1, {10, 10});
  EXPECT_DEATH(batcher_.reset(), "Batcher destroyed while 2 sequences wait and 0 batches run");
}

// Against a slow, obvious model -----------------------------------------------------------------

// The rules of batcher.h (without admission by deadline) on plain vectors, read off the comment.
class ObviousBatcher {
 public:
  struct Entry {
    int32_t name;
    int64_t rank;
    absl::Time deadline;
    absl::Time arrival;
    std::vector<int> lengths;  // that wait
    int running = 0;
    int passes = 0;
    bool overtaken = false;
    absl::Status status;
  };

  explicit ObviousBatcher(const BatcherOptions& options, absl::Time start)
      : options_(options), start_(start) {}

  absl::StatusCode Submit(int32_t name, const std::vector<int>& lengths, Priority priority,
                          absl::Time deadline, absl::Time now) {
    if (deadline <= now) return absl::StatusCode::kDeadlineExceeded;
    int64_t tokens = QueuedTokens();
    int64_t sequences = QueuedSequences();
    for (int length : lengths) tokens += length, ++sequences;
    if (tokens > options_.max_queue_tokens || sequences > options_.max_queue_sequences) {
      return absl::StatusCode::kResourceExhausted;
    }
    const int64_t tick = (now - start_) / options_.ageing_interval;
    entries_.push_back(
        {name, tick - static_cast<int>(priority), deadline, now, lengths, 0, 0, false, {}});
    return absl::StatusCode::kOk;
  }

  void End(int32_t name, const absl::Status& status) {
    Entry* entry = Find(name);
    if (entry == nullptr || entry->lengths.empty()) return;
    entry->lengths.clear();
    entry->status.Update(status);
    Collect();
  }

  void Expire(absl::Time now) {
    std::vector<int32_t> names;
    for (const Entry& entry : entries_) {
      if (entry.deadline <= now) names.push_back(entry.name);
    }
    for (int32_t name : names) End(name, absl::DeadlineExceededError(""));
  }

  void CancelAt(int32_t name, absl::Time now) {
    Entry* entry = Find(name);
    if (entry == nullptr) return;
    End(name, entry->deadline <= now ? absl::DeadlineExceededError("") : absl::CancelledError(""));
  }

  // Names, one per sequence; `lengths` likewise.
  std::vector<int32_t> Take(absl::Time now, std::vector<int>* taken_lengths) {
    Expire(now);
    std::vector<int32_t> names;
    if (QueuedSequences() == 0) return names;
    absl::Time oldest = absl::InfiniteFuture();
    for (const Entry& entry : entries_) {
      if (!entry.lengths.empty()) oldest = std::min(oldest, entry.arrival);
    }
    if (now < oldest + options_.max_queue_delay && QueuedTokens() < options_.max_batch_tokens &&
        QueuedSequences() < options_.max_batch_sequences) {
      return names;
    }
    std::vector<Entry*> order;
    for (Entry& entry : entries_) order.push_back(&entry);
    std::stable_sort(order.begin(), order.end(), [](const Entry* a, const Entry* b) {
      if (a->overtaken != b->overtaken) return a->overtaken;
      if (a->overtaken) return false;  // by arrival
      return std::tie(a->rank, a->deadline) < std::tie(b->rank, b->deadline);
    });
    int budget = options_.max_batch_tokens;
    int skipped = 0;
    std::vector<Entry*> passed;
    std::vector<Entry*> overtaken;
    for (Entry* entry : order) {
      for (size_t i = 0; i < entry->lengths.size();) {
        if (budget == 0 || static_cast<int>(names.size()) == options_.max_batch_sequences) break;
        const int length = entry->lengths[i];
        if (length > budget) {
          if (skipped == (options_.max_passes == 0 ? 0 : kMaxLookPast)) {
            budget = 0;
            break;
          }
          ++skipped;
          passed.push_back(entry);
          ++i;
          continue;
        }
        for (Entry* other : passed) {
          if (other != entry) overtaken.push_back(other);
        }
        budget -= length;
        names.push_back(entry->name);
        taken_lengths->push_back(length);
        ++entry->running;
        entry->lengths.erase(entry->lengths.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    std::sort(overtaken.begin(), overtaken.end());
    overtaken.erase(std::unique(overtaken.begin(), overtaken.end()), overtaken.end());
    for (Entry* entry : overtaken) {
      if (++entry->passes == options_.max_passes) entry->overtaken = true;
    }
    return names;
  }

  void Finish(const std::vector<int32_t>& names, const absl::Status& status) {
    for (int32_t name : names) {
      Entry* entry = Find(name);
      --entry->running;
      entry->status.Update(status);
      if (!entry->status.ok()) entry->lengths.clear();
    }
    Collect();
  }

  void Abort(const absl::Status& status) {
    std::vector<int32_t> names;
    for (const Entry& entry : entries_) names.push_back(entry.name);
    for (int32_t name : names) End(name, status);
  }

  int64_t QueuedTokens() const {
    int64_t tokens = 0;
    for (const Entry& entry : entries_) {
      for (int length : entry.lengths) tokens += length;
    }
    return tokens;
  }
  int64_t QueuedSequences() const {
    int64_t sequences = 0;
    for (const Entry& entry : entries_) sequences += static_cast<int64_t>(entry.lengths.size());
    return sequences;
  }

  std::map<int32_t, absl::StatusCode> answers;

 private:
  Entry* Find(int32_t name) {
    for (Entry& entry : entries_) {
      if (entry.name == name) return &entry;
    }
    return nullptr;
  }

  void Collect() {
    for (size_t i = 0; i < entries_.size();) {
      if (entries_[i].lengths.empty() && entries_[i].running == 0) {
        answers[entries_[i].name] = entries_[i].status.code();
        entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
      } else {
        ++i;
      }
    }
  }

  const BatcherOptions options_;
  const absl::Time start_;
  std::vector<Entry> entries_;  // by arrival
};

void CompareWithObvious(uint64_t seed) {
  SCOPED_TRACE(absl::StrCat("SRU_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  const auto below = [&random](int n) { return static_cast<int>(random() % n); };
  FakeClock clock;
  BatcherOptions options;
  options.max_batch_tokens = 20 + below(100);
  options.max_batch_sequences = 1 + below(20);
  options.max_queue_tokens = options.max_batch_tokens * (1 + below(20));
  options.max_queue_sequences = 20 + below(200);
  options.ageing_interval = Ms(1 + below(40));
  options.max_passes = below(4);
  options.admission_by_deadline = false;
  // The delay gives way to deadlines by the learnt speed, which the obvious model does not have.
  const bool deadlines = below(2) == 0;
  options.max_queue_delay = deadlines ? absl::ZeroDuration() : Ms(below(10));
  auto created = Batcher::Create(options, &clock);
  ASSERT_TRUE(created.ok()) << created.status();
  Batcher& batcher = **created;
  ObviousBatcher obvious(options, clock.Now());
  std::map<int32_t, absl::StatusCode> answers;
  std::vector<RequestHandle> handles;  // by name; null when refused
  struct Running {
    std::unique_ptr<Batch> batch;
    std::vector<int32_t> names;
  };
  std::vector<Running> running;
  const auto finish = [&](const absl::Status& status) {
    const size_t index = random() % running.size();
    Running batch = std::move(running[index]);
    running.erase(running.begin() + static_cast<std::ptrdiff_t>(index));
    batcher.Finish(std::move(batch.batch), status, Ms(1));
    obvious.Finish(batch.names, status);
  };

  for (int step = 0; step < 400; ++step) {
    const int what = below(100);
    const absl::Time now = clock.Now();
    if (what < 50) {
      const int32_t name = static_cast<int32_t>(handles.size());
      std::vector<int> lengths(below(8) == 0 ? 1 + below(12) : 1);
      for (int& length : lengths) length = 1 + below(below(3) == 0 ? options.max_batch_tokens : 20);
      BatchRequest request = MakeRequest(name, lengths);
      request.priority = static_cast<Priority>(below(3));
      if (deadlines && below(2) == 0) request.deadline = now + Ms(below(60));
      request.done = [&answers, name](const absl::Status& status, const RequestTimes&) {
        EXPECT_TRUE(answers.emplace(name, status.code()).second) << "answered twice: " << name;
      };
      const Priority priority = request.priority;
      const absl::Time deadline = request.deadline;
      int64_t tokens = 0;
      for (int length : lengths) tokens += length;
      auto handle = batcher.Submit(std::move(request));
      if (tokens > options.max_queue_tokens) {
        EXPECT_EQ(handle.status().code(), absl::StatusCode::kInvalidArgument);
      } else {
        EXPECT_EQ(handle.status().code(), obvious.Submit(name, lengths, priority, deadline, now));
      }
      handles.push_back(handle.ok() ? *handle : nullptr);
    } else if (what < 60) {
      clock.Advance(Ms(below(10)));
    } else if (what < 80) {
      std::vector<int> lengths;
      const std::vector<int32_t> names = obvious.Take(now, &lengths);
      std::unique_ptr<Batch> batch = batcher.TryTakeBatch();
      ASSERT_EQ(batch != nullptr, !names.empty());
      if (batch != nullptr) {
        std::vector<int32_t> found_names;
        std::vector<int> found_lengths;
        for (const SequenceTask* sequence : batch->sequences()) {
          found_names.push_back(sequence->token_ids[0]);
          found_lengths.push_back(sequence->num_tokens);
        }
        EXPECT_THAT(found_names, ElementsAreArray(names));
        EXPECT_THAT(found_lengths, ElementsAreArray(lengths));
        running.push_back({std::move(batch), names});
      }
    } else if (what < 92) {
      if (!running.empty()) {
        finish(below(10) == 0 ? absl::InternalError("broken") : absl::OkStatus());
      }
    } else if (what < 97) {
      if (!handles.empty()) {
        const int32_t name = below(static_cast<int>(handles.size()));
        batcher.Cancel(handles[name]);
        if (handles[name] != nullptr) obvious.CancelAt(name, now);
      }
    } else if (what < 99) {
      AnswerExpired(batcher);
      obvious.Expire(now);
    } else if (below(5) == 0) {
      batcher.Abort(absl::UnavailableError("aborted"));
      obvious.Abort(absl::UnavailableError("aborted"));
    }
    const BatcherStats stats = batcher.stats();
    ASSERT_EQ(stats.queued_tokens, obvious.QueuedTokens()) << "step " << step;
    ASSERT_EQ(stats.queued_sequences, obvious.QueuedSequences()) << "step " << step;
    ASSERT_EQ(stats.running_batches, static_cast<int64_t>(running.size()));
    ASSERT_EQ(answers, obvious.answers) << "step " << step;
    if (::testing::Test::HasFailure()) break;
  }

  while (!running.empty()) finish(absl::OkStatus());
  batcher.Close();
  batcher.Abort(absl::UnavailableError("end"));
  obvious.Abort(absl::UnavailableError("end"));
  EXPECT_EQ(answers, obvious.answers);
  const size_t accepted = handles.size() - std::count(handles.begin(), handles.end(), nullptr);
  EXPECT_EQ(answers.size(), accepted);
  const BatcherStats stats = batcher.stats();
  EXPECT_EQ(stats.queued_tokens, 0);
  EXPECT_EQ(stats.queued_sequences, 0);
}

TEST(BatcherPropertyTest, AgreesWithTheObviousModel) {
  for (uint64_t i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    CompareWithObvious(Seed() + i);
  }
}

}  // namespace
}  // namespace sru::server
