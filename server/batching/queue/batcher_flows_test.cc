// Several callers in one queue (fair_order.h).
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/queue/batcher.h"
#include "server/batching/queue/flow.h"
#include "tests/testing/batcher_fixture.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;

// Names below 100 are the first caller's, below 200 the second's and so on.
class BatcherFlowsTest : public BatcherTest {
 protected:
  absl::Status Submit(int32_t name, const std::vector<int>& lengths,
                      Priority priority = Priority::kNormal,
                      absl::Duration timeout = absl::InfiniteDuration()) {
    BatchRequest request = MakeRequest(name, lengths);
    request.flow = flows_[name / 100];
    request.priority = priority;
    request.deadline = clock_.Now() + timeout;
    request.done = [this, name](const absl::Status& status, const RequestTimes& times) {
      answers_[name].push_back({status, times});
    };
    auto handle = batcher_->Submit(std::move(request));
    if (handle.ok()) handles_[name] = *handle;
    return handle.status();
  }
  void Fill(int32_t first, int count, int length, Priority priority = Priority::kNormal) {
    for (int i = 0; i < count; ++i) {
      const absl::Status status = Submit(first + i, {length}, priority);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  // The sequences of one batch, by caller.
  std::vector<int> Shares() {
    std::vector<int> shares(flows_.size());
    for (const int32_t name : puppet_->TakeNames()) ++shares[name / 100];
    puppet_->Finish();
    return shares;
  }

  const std::vector<std::shared_ptr<Flow>> flows_ = {
      std::make_shared<Flow>("a"), std::make_shared<Flow>("b"), std::make_shared<Flow>("c", 3)};
};

TEST_F(BatcherFlowsTest, AChangedWeightReachesAFlowThatAlwaysHasWork) {
  Start();
  Fill(0, 48, 10);
  Fill(100, 48, 10);
  Shares();
  Shares();
  flows_[1]->set_weight(3);
  std::vector<int> sums(2);
  for (int i = 0; i < 4; ++i) {
    const std::vector<int> shares = Shares();
    for (size_t flow = 0; flow < 2; ++flow) sums[flow] += shares[flow];
  }
  EXPECT_NEAR(sums[1], 3 * sums[0], 4) << sums[0] << " and " << sums[1];
}

TEST_F(BatcherFlowsTest, OldLowWorkDoesNotKeepACallersOtherWorkFromItsShare) {
  Start();
  Fill(0, 30, 10, Priority::kLow);
  clock_.Advance(Ms(1100));  // it goes before what comes now, within the flow
  Fill(100, 50, 10);
  Fill(40, 1, 10);
  EXPECT_GE(Shares()[0], 4);
  EXPECT_GE(Shares()[0], 4);
  // Once no other work waits, it is low again.
  for (int i = 0; i < 100 && answers_.count(40) == 0; ++i) Shares();
  EXPECT_EQ(Shares()[0], 0);
}

TEST_F(BatcherFlowsTest, FlowsShareABatchByTokensAndWeight) {
  Start();
  Fill(0, 40, 10);
  Fill(100, 20, 20);
  EXPECT_THAT(Shares(), ElementsAre(6, 2, 0));
  EXPECT_THAT(Shares(), ElementsAre(4, 3, 0));
  Fill(200, 40, 10);
  for (int i = 0; i < 2; ++i) Shares();  // whoever comes may have a batch of its own first
  std::vector<int> sums(3);
  for (int i = 0; i < 2; ++i) {
    const std::vector<int> shares = Shares();
    for (size_t flow = 0; flow < 3; ++flow) sums[flow] += shares[flow];
  }
  EXPECT_NEAR(sums[0], 4, 1);
  EXPECT_NEAR(sums[1], 2, 1);
  EXPECT_NEAR(sums[2], 12, 2);
}

TEST_F(BatcherFlowsTest, OneAloneGetsEverything) {
  Start();
  Fill(0, 25, 10);
  EXPECT_THAT(Shares(), ElementsAre(10, 0, 0));
  EXPECT_THAT(Shares(), ElementsAre(10, 0, 0));
  EXPECT_THAT(Shares(), ElementsAre(5, 0, 0));
}

TEST_F(BatcherFlowsTest, WhoComesDoesNotWaitBehindAQueue) {
  Start();
  Fill(0, 48, 10);
  EXPECT_THAT(Shares(), ElementsAre(10, 0, 0));
  Fill(100, 1, 10);
  EXPECT_THAT(Shares(), ElementsAre(9, 1, 0));
}

TEST_F(BatcherFlowsTest, NobodySavesUpForLater) {
  Start();
  Fill(100, 1, 10);
  EXPECT_THAT(Shares(), ElementsAre(0, 1, 0));
  Fill(0, 80, 10);
  for (int i = 0; i < 4; ++i) EXPECT_THAT(Shares(), ElementsAre(10, 0, 0));
  Fill(101, 40, 10);
  EXPECT_THAT(Shares(), ElementsAre(0, 10, 0));  // a batch of the other one has been chosen before
  EXPECT_THAT(Shares(), ElementsAre(5, 5, 0));
}

TEST_F(BatcherFlowsTest, TheDeadlineOrdersWhatOneCallerSends) {
  Start();
  Fill(0, 1, 50);
  ASSERT_TRUE(Submit(1, {50}, Priority::kNormal, Ms(100)).ok());
  ASSERT_TRUE(Submit(100, {50}, Priority::kNormal, Ms(200)).ok());
  // The second caller's deadline does not matter to the first: each gets half.
  EXPECT_THAT(puppet_->TakeNames(), ElementsAre(1, 100));
}

TEST_F(BatcherFlowsTest, AHigherPriorityGoesFirstButNotForEver) {
  options_.ageing_interval = Ms(10);
  Start();
  Fill(100, 1, 10, Priority::kLow);
  Fill(0, 30, 10, Priority::kHigh);
  EXPECT_THAT(Shares(), ElementsAre(10, 0, 0));
  clock_.Advance(Ms(30));
  EXPECT_THAT(Shares(), ElementsAre(9, 1, 0));
}

TEST_F(BatcherFlowsTest, OneDoesNotKeepOthersOutOfTheQueue) {
  Start();
  Fill(0, 100, 1);  // max_queue_sequences
  EXPECT_EQ(Submit(99, {1}).code(), absl::StatusCode::kResourceExhausted);
  // Half as much beyond the bound is for others, by weight: this one may have half of 50.
  Fill(100, 25, 1);
  EXPECT_EQ(Submit(199, {1}).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Submit(98, {1}).code(), absl::StatusCode::kResourceExhausted);
  Fill(200, 25, 1);
  EXPECT_EQ(Submit(299, {1}).code(), absl::StatusCode::kResourceExhausted);  // 150
}

TEST_F(BatcherFlowsTest, DeadlinesAreJudgedByTheOwnShare) {
  Start();
  Learn(100, Ms(100), 4);
  Fill(0, 50, 20);  // a second of work
  // Two batches of its own take 0.2 s alone, and in turns with the other caller 0.4 s.
  EXPECT_EQ(Submit(50, {100}, Priority::kNormal, Ms(700)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Submit(100, {100}, Priority::kNormal, Ms(150)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(Submit(101, {50, 50}, Priority::kNormal, Ms(400)).code(), absl::StatusCode::kOk);
  // This caller's own requests delay it more than the other caller's.
  EXPECT_EQ(Submit(102, {100}, Priority::kNormal, Ms(400)).code(),
            absl::StatusCode::kResourceExhausted);
}

// 10 us a token: 100 tokens take kPiece.
class BatcherPiecesTest : public BatcherFlowsTest {
 protected:
  void SetUp() override {
    options_.max_batch_tokens = 1000;
    options_.max_queue_tokens = 10000;
    options_.max_batch_sequences = 1000;
    options_.max_queue_sequences = 10000;
    Start();
    Learn(100, Ms(1), 4);
  }
  // The sequences of one batch, by caller; each has 10 tokens.
  std::vector<int> Pieces() {
    std::vector<int> pieces(flows_.size());
    const auto names = puppet_->TakeNames();
    for (const int32_t name : names) ++pieces[name / 100];
    puppet_->Finish(absl::OkStatus(), Ms(0.1) * names.size());
    return pieces;
  }
};

TEST_F(BatcherPiecesTest, BatchesAreSmallWhileCallersCompete) {
  clock_.Advance(kContest);
  Fill(0, 1, 10);
  clock_.Advance(kContest);
  Fill(1, 29, 10);
  EXPECT_EQ(puppet_->TakeNames().size(), 30u);
  puppet_->Finish(absl::OkStatus(), Ms(3));
  Fill(30, 60, 10);
  Fill(100, 2, 10);
  EXPECT_EQ(puppet_->TakeNames().size(), 10u);
  puppet_->Finish(absl::OkStatus(), Ms(1));
  // The next call may come at any time.
  EXPECT_EQ(puppet_->TakeNames().size(), 10u);
  puppet_->Finish(absl::OkStatus(), Ms(1));
  clock_.Advance(kContest);
  EXPECT_EQ(puppet_->TakeNames().size(), 42u);
}

TEST_F(BatcherPiecesTest, WhoHasLittleSharesNoBatchWithWhoHasMuch) {
  Fill(0, 48, 10);
  Fill(100, 1, 10);
  Pieces();
  Fill(101, 1, 10);
  Fill(200, 1, 10);
  EXPECT_THAT(Pieces(), ElementsAre(0, 1, 1));
  EXPECT_THAT(Pieces(), ElementsAre(10, 0, 0));
  Fill(102, 60, 10);  // no longer little
  std::vector<int> sums(3);
  for (int i = 0; i < 4; ++i) {
    const std::vector<int> pieces = Pieces();
    for (size_t flow = 0; flow < 3; ++flow) sums[flow] += pieces[flow];
  }
  EXPECT_GE(sums[0], 5);
  EXPECT_GE(sums[1], 5);
}

// As for a batch that interrupts another one.
TEST_F(BatcherPiecesTest, ABatchWithinABoundIsOfWhoGoesFirst) {
  // The sequences of each caller in it.
  const auto take = [&](const OrderWeight& most) {
    std::vector<int> sequences(flows_.size());
    const Flow* const first = batcher_->Next(clock_.Now()).flow;
    auto batch = batcher_->TryTakeBatchWithin(most, /*strictly=*/true);
    if (batch == nullptr) return sequences;
    EXPECT_EQ(batch->parts[0].flow.get(), first);
    for (const SequenceTask* task : batch->sequences) {
      ++sequences[TaskOf(task).token_ids[0] / 100];
    }
    batcher_->Finish(std::move(batch), absl::OkStatus(), Ms(0.1));
    return sequences;
  };
  const OrderWeight enough = {64, 64};
  Fill(100, 1, 10);
  Fill(0, 48, 10);
  EXPECT_THAT(take({9, 64}), ElementsAre(0, 0, 0)) << "it does not fit";
  EXPECT_THAT(take({64, 0}), ElementsAre(0, 0, 0));
  EXPECT_THAT(take(enough), ElementsAre(0, 1, 0)) << "who has little shares no batch";
  Fill(101, 1, 10);
  EXPECT_THAT(take(enough), ElementsAre(5, 1, 0)) << "the other one has had nothing yet";
}

TEST_F(BatcherFlowsTest, NextNamesWhoseWorkGoesFirst) {
  Start();
  const auto next = [this] { return batcher_->Next(clock_.Now()).flow; };
  Fill(0, 1, 10);
  EXPECT_EQ(next(), flows_[0].get());
  Fill(1, 29, 10);
  EXPECT_EQ(next(), flows_[0].get());
  EXPECT_THAT(Shares(), ElementsAre(10, 0, 0));
  Fill(100, 2, 10);
  EXPECT_EQ(next(), flows_[1].get()) << "who has had less";
  EXPECT_EQ(next(), flows_[1].get()) << "to ask changes nothing";
  Fill(40, 1, 10, Priority::kHigh);
  EXPECT_EQ(next(), flows_[0].get()) << "of high priority";
  batcher_->Cancel(handles_[40]);
  EXPECT_EQ(next(), flows_[1].get());
  Shares();
  EXPECT_EQ(next(), flows_[0].get());
  Shares();
  Shares();
  EXPECT_EQ(batcher_->Next(clock_.Now()).at, absl::InfiniteFuture());
}

TEST_F(BatcherPiecesTest, WhoAlwaysHasLittlePaysForWholeBatches) {
  const auto time_of = [](int tokens) { return Ms(10) + Ms(0.5) * tokens; };
  for (int i = 0; i < 16; ++i) {
    Learn(20, time_of(20), 1);
    Learn(100, time_of(100), 1);
  }
  Fill(0, 100, 10);
  absl::Duration sums[2];  // of batches of the caller who has little alone, and of the others
  bool waits = false;
  for (int i = 100; sums[0] + sums[1] < Ms(500); ++i) {
    if (!waits) Fill(i, 1, 1);
    const auto names = puppet_->TakeNames();
    const auto own = std::count_if(names.begin(), names.end(),
                                   [](const int32_t name) { return name / 100 == 1; });
    const auto others = static_cast<int64_t>(names.size()) - own;
    waits = own == 0;
    const absl::Duration time = time_of(static_cast<int>(own + 10 * others));
    sums[others > 0 ? 1 : 0] += time;
    puppet_->Finish(absl::OkStatus(), time);
  }
  EXPECT_LE(sums[0], 0.6 * (sums[0] + sums[1]));
}

TEST_F(BatcherPiecesTest, WhoAlwaysHasLittleGetsNoMoreThanItsShare) {
  Fill(0, 48, 10);
  std::vector<int> sums(3);
  for (int i = 0; i < 20; ++i) {
    Fill(100 + i, sums[1] == i ? 1 : 0, 10);  // one after the other
    const std::vector<int> pieces = Pieces();
    for (size_t flow = 0; flow < 3; ++flow) sums[flow] += pieces[flow];
  }
  EXPECT_GE(sums[0], sums[1]);
  EXPECT_GE(sums[1], 5);
}

}  // namespace
}  // namespace sru::server::batching
