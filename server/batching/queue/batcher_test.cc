// The batcher's rules, one by one, with a fake clock and a puppet engine: no threads, no sleeps.
// Admission by deadline has a file of its own (batcher_admission_test.cc).
#include "server/batching/queue/batcher.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/batcher_fixture.h"
#include "tests/testing/puppet_engine.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
  EXPECT_EQ(
      Text(status),
      "the queue is full: at most 1000 tokens and 100 sequences may wait (--max_queue_tokens, "
      "--max_queue_sequences); retry later");
  EXPECT_EQ(retry_after_, Ms(100));  // nothing was measured
  EXPECT_EQ(batcher_->stats().queued_tokens, 960);
  EXPECT_EQ(batcher_->stats().queued_sequences, 19);
  EXPECT_EQ(batcher_->stats().rejected[RejectReason::kQueueFull], 1);
  Accept(11, {40});
  EXPECT_EQ(Submit(12, {1}).code(), absl::StatusCode::kResourceExhausted);
  // Running requests are not in the queue.
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
  EXPECT_THAT(Text(status), HasSubstr("at most 1000 tokens and 100 sequences may wait"));
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
  EXPECT_FALSE(batcher_->IsDone()) << "one waits";
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  EXPECT_FALSE(batcher_->IsDone()) << "a batch runs";
  puppet_->Finish();
  EXPECT_EQ(code(1), absl::StatusCode::kOk);
  EXPECT_EQ(batcher_->TryTakeBatch(), nullptr);
  EXPECT_TRUE(batcher_->IsDone());
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
  EXPECT_FALSE(batcher_->IsDone());
  puppet_->Finish();  // the running request is answered as usual
  EXPECT_EQ(code(1), absl::StatusCode::kOk);
  EXPECT_EQ(batcher_->TryTakeBatch(), nullptr);
  EXPECT_TRUE(batcher_->IsDone());
}

// What workers are told ---------------------------------------------------------------------------

TEST_F(BatcherTest, NextSaysWhenThereIsSomethingToDo) {
  Start();
  const auto next = [this] { return batcher_->Next(clock_.Now()).at; };
  EXPECT_EQ(next(), absl::InfiniteFuture());
  EXPECT_FALSE(batcher_->IsDone()) << "it is not closed";
  Accept(1, {10});
  EXPECT_LE(next(), clock_.Now());
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  EXPECT_EQ(next(), absl::InfiniteFuture()) << "a batch that runs leaves nothing to do";
  Accept(2, {10});
  EXPECT_LE(next(), clock_.Now());
  batcher_->Cancel(handles_[2]);
  EXPECT_EQ(next(), absl::InfiniteFuture());
}

TEST_F(BatcherTest, NextIsTheEndOfTheDelayUnlessSomethingComesBefore) {
  options_.max_queue_delay = Ms(10);
  Start();
  const absl::Time start = clock_.Now();
  const auto next = [this] { return batcher_->Next(clock_.Now()).at; };
  Accept(1, {10});
  EXPECT_EQ(next(), start + Ms(10));
  clock_.Advance(Ms(4));
  Accept(2, {10});
  EXPECT_EQ(next(), start + Ms(10)) << "the oldest decides";
  Accept(3, {10}, Priority::kNormal, Ms(3));
  EXPECT_EQ(next(), start + Ms(7)) << "one expires before";
  clock_.Advance(Ms(3));
  EXPECT_LE(next(), clock_.Now());
  EXPECT_FALSE(puppet_->Take());
  EXPECT_EQ(code(3), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(next(), start + Ms(10)) << "what has expired is gone";
  Accept(4, {80});
  EXPECT_LE(next(), clock_.Now()) << "a full batch waits";
  EXPECT_TRUE(puppet_->Take());
  EXPECT_EQ(next(), absl::InfiniteFuture());
  Accept(5, {10});
  EXPECT_EQ(next(), clock_.Now() + Ms(10));
  batcher_->Close();
  EXPECT_LE(next(), clock_.Now());
}

TEST_F(BatcherTest, NextLeavesADeadlineTheTimeOfItsBatch) {
  options_.max_queue_delay = Ms(10);
  Start();
  Accept(1, {10});
  clock_.Advance(Ms(10));
  ASSERT_TRUE(puppet_->Take());
  puppet_->Finish(absl::OkStatus(), Ms(2));  // 10 tokens take 2 ms
  Accept(2, {10}, Priority::kNormal, Ms(6));
  const absl::Time next = batcher_->Next(clock_.Now()).at;
  EXPECT_GT(next, clock_.Now());
  EXPECT_LE(next, clock_.Now() + Ms(4));
  clock_.Set(next);
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
}

TEST_F(BatcherTest, TellsOfWorkAndOfTheEnd) {
  Start();
  int told = 0;
  bool wakes_later = false;
  batcher_->OnWork(
      [&] {
        ++told;
        batcher_->stats();  // without the lock
      },
      [&] { return wakes_later; });
  Accept(1, {10});
  EXPECT_EQ(told, 1);
  Accept(2, {10});
  EXPECT_EQ(told, 2);
  EXPECT_EQ(Submit(3, {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(told, 2) << "nothing has come";
  wakes_later = true;
  Accept(3, {10});
  EXPECT_EQ(told, 2) << "whoever has submitted it brings about that it is looked for";
  EXPECT_LE(batcher_->Next(clock_.Now()).at, clock_.Now());
  batcher_->Close();
  EXPECT_EQ(told, 3);
  batcher_->Cancel(handles_[1]);
  batcher_->Cancel(handles_[2]);
  batcher_->Cancel(handles_[3]);
  EXPECT_GE(told, 4) << "nothing is left";
  EXPECT_TRUE(batcher_->IsDone());
  batcher_->OnWork([] {}, [] { return false; });
}

TEST_F(BatcherTest, TellsThatAnAbortHasLeftNothing) {
  Start();
  int told = 0;
  batcher_->OnWork([&] { ++told; }, [] { return false; });
  Accept(1, {10});
  batcher_->Close();
  told = 0;
  batcher_->Abort(absl::UnavailableError("out of time"));
  EXPECT_GE(told, 1);
  EXPECT_TRUE(batcher_->IsDone());
  batcher_->OnWork([] {}, [] { return false; });
}

// Small batches -----------------------------------------------------------------------------------

TEST_F(BatcherTest, ABatchWithinABoundKeepsToIt) {
  Start();
  for (int i = 1; i <= 6; ++i) Accept(i, {10});
  // The names in a batch of at most so much.
  const auto take = [this](const OrderWeight& most, bool strictly) {
    std::vector<int32_t> names;
    std::unique_ptr<Batch> batch = batcher_->TryTakeBatchWithin(most, strictly);
    if (batch == nullptr) return names;
    for (const SequenceTask* task : batch->sequences) names.push_back(TaskOf(task).token_ids[0]);
    EXPECT_EQ(batch->left_some, batcher_->stats().queued_sequences > 0);
    batcher_->Finish(std::move(batch), absl::OkStatus(), Ms(1));
    return names;
  };
  for (const bool strictly : {false, true}) {
    EXPECT_THAT(take({25, 10}, strictly), ElementsAreArray(strictly ? std::vector<int32_t>{4, 5}
                                                                    : std::vector<int32_t>{1, 2}));
    EXPECT_THAT(take({100, 1}, strictly), ElementsAre(strictly ? 6 : 3));
  }
  EXPECT_THAT(take({100, 10}, true), IsEmpty());
  EXPECT_EQ(batcher_->stats().running_batches, 0);
  for (int i = 7; i <= 9; ++i) Accept(i, {60});
  EXPECT_THAT(take({200, 10}, true), ElementsAre(7)) << "no more than max_batch_tokens";
  EXPECT_THAT(take({50, 10}, true), IsEmpty());
  EXPECT_EQ(batcher_->stats().queued_sequences, 2);
  EXPECT_THAT(take({50, 10}, false), ElementsAre(8)) << "a single one may have more";
  for (const bool strictly : {false, true}) EXPECT_THAT(take({100, 0}, strictly), IsEmpty());
  EXPECT_THAT(take({0, 0}, true), IsEmpty());
  EXPECT_EQ(batcher_->stats().queued_sequences, 1);
  EXPECT_EQ(batcher_->stats().running_batches, 0);
}

TEST_F(BatcherTest, ABatchWithinABoundWaitsForTheDelayAndAnswersWhatHasExpired) {
  options_.max_queue_delay = Ms(10);
  Start();
  Accept(1, {10});
  Accept(2, {10}, Priority::kNormal, Ms(5));
  EXPECT_EQ(batcher_->TryTakeBatchWithin({50, 5}, /*strictly=*/true), nullptr);
  clock_.Advance(Ms(5));
  EXPECT_EQ(batcher_->TryTakeBatchWithin({50, 5}, /*strictly=*/true), nullptr);
  EXPECT_EQ(code(2), absl::StatusCode::kDeadlineExceeded);
  clock_.Advance(Ms(5));
  std::unique_ptr<Batch> batch = batcher_->TryTakeBatchWithin({50, 5}, /*strictly=*/true);
  ASSERT_NE(batch, nullptr);
  EXPECT_EQ(batch->num_tokens, 10);
  batcher_->Finish(std::move(batch), absl::OkStatus(), Ms(1));
}

TEST_F(BatcherTest, AShortBatchIsOneThatWasMeasuredToBe) {
  Start();
  Accept(1, {5});
  EXPECT_EQ(batcher_->TryTakeShortBatch(), nullptr) << "nothing is known yet";
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1));
  puppet_->Finish();
  Learn(10, absl::Microseconds(90), 4);  // 9 us a token
  Accept(2, {25, 25});
  EXPECT_EQ(batcher_->TryTakeShortBatch(), nullptr) << "it takes 0.45 ms";
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2, 2));
  puppet_->Finish();
  Accept(3, {15, 15});
  std::unique_ptr<Batch> batch = batcher_->TryTakeShortBatch();
  ASSERT_NE(batch, nullptr);
  EXPECT_FALSE(batch->left_some);
  batcher_->Finish(std::move(batch), absl::OkStatus(), absl::Microseconds(270));
}

TEST_F(BatcherTest, AShortBatchIsHalfOfWhatTakesLonger) {
  Start();
  Learn(10, absl::Microseconds(90), 4);  // 9 us a token
  for (int i = 1; i <= 5; ++i) Accept(i, {10});
  for (const int tokens : {20, 30}) {  // 50 tokens take 0.45 ms, 30 take 0.27 ms
    std::unique_ptr<Batch> batch = batcher_->TryTakeShortBatch();
    ASSERT_NE(batch, nullptr);
    EXPECT_EQ(batch->num_tokens, tokens);
    EXPECT_EQ(batch->left_some, tokens == 20);
    batcher_->Finish(std::move(batch), absl::OkStatus(), absl::Microseconds(9) * tokens);
  }
  EXPECT_EQ(batcher_->TryTakeShortBatch(), nullptr);
  for (int i = 6; i <= 12; ++i) Accept(i, {10});
  EXPECT_EQ(batcher_->TryTakeShortBatch(), nullptr) << "all take 0.63 ms";
  while (puppet_->Take()) puppet_->Finish();
}

// How a batch is filled -------------------------------------------------------------------------

TEST_F(BatcherTest, ABatchHoldsManyRequestsUpToTheTokenBudget) {
  Start();
  EXPECT_FALSE(puppet_->Take());
  for (int i = 1; i <= 4; ++i) Accept(i, {30});
  Accept(5, {10});
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 2, 3, 5));  // 100 tokens; 4 does not fit
  EXPECT_EQ(puppet_->running(0).num_tokens, 100);
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
  EXPECT_EQ(puppet_->running(0).sequences[0]->num_tokens, 90);
  clock_.Advance(Ms(4));
  EXPECT_TRUE(puppet_->Take());
  EXPECT_EQ(puppet_->running(1).num_tokens, 100);  // 80 + 20
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
  EXPECT_EQ(puppet_->running(0).num_tokens, 100);
  EXPECT_TRUE(puppet_->Take());
  EXPECT_THAT(puppet_->names(), ElementsAre(2, 2));
  EXPECT_EQ(puppet_->running(1).num_tokens, 95);
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
  // It is now of the normal level, so the deadline decides.
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
  // More requests of the highest level than can be served, all of them with a deadline.
  int32_t name = 1;
  while (!answered(1)) {
    ASSERT_LT(name, 320);
    for (int i = 0; i < 2; ++i) Accept(++name, {1}, Priority::kHigh, absl::Seconds(100));
    ASSERT_TRUE(puppet_->Take());
    puppet_->Finish(absl::OkStatus(), Ms(20));
  }
  // The requests of the first three ticks, 50 per tick, go first. Each takes a round, which brings
  // two more.
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
  clock_.Advance(Ms(5));  // at the deadline itself it is too late
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(2));
  EXPECT_EQ(code(1), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Text(answers_[1][0].status), "the deadline passed after 5ms in the queue");
  EXPECT_EQ(answers_[1][0].times.queue, Ms(5));
  EXPECT_EQ(answers_[1][0].times.compute, absl::ZeroDuration());
  EXPECT_EQ(batcher_->stats().expired, 1);
  EXPECT_EQ(batcher_->stats().cancelled, 0);
  // A running request is computed, however late.
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
  batcher_->Cancel(handles_[2]);  // it is running: computed and answered as if nothing had happened
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

TEST_F(BatcherTest, AnInterruptionCountsAsTimeInTheQueue) {
  Start();
  Accept(1, {10});
  clock_.Advance(Ms(1));
  EXPECT_TRUE(puppet_->Take());
  clock_.Advance(Ms(5));
  puppet_->running(0).StartLater(Ms(5));
  puppet_->Finish(absl::OkStatus(), Ms(2));
  EXPECT_EQ(answers_[1][0].times.queue, Ms(6));
  EXPECT_EQ(answers_[1][0].times.compute, Ms(2));
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
  EXPECT_FALSE(answered(2));  // a part of it is running
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
  puppet_->running(0).failures.emplace_back(3, absl::InvalidArgumentError("token 7"));
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

// A worker sleeps until the time that Next() has said.
TEST_F(BatcherTest, WorkersHearThatABatchIsReadySooner) {
  options_.max_queue_delay = Ms(100);
  Start();
  int told = 0;
  batcher_->OnWork([&told] { ++told; }, [] { return false; });
  Accept(1, {10});
  clock_.Advance(Ms(100));
  ASSERT_TRUE(puppet_->Take());
  Accept(2, {10}, Priority::kNormal, Ms(50));
  told = 0;
  const absl::Time before = batcher_->Next(clock_.Now()).at;
  puppet_->Finish(absl::OkStatus(), Ms(20));  // 10 tokens take 20 ms
  EXPECT_LT(batcher_->Next(clock_.Now()).at, before);
  EXPECT_EQ(told, 1);
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

}  // namespace
}  // namespace sru::server::batching
