// The scheduler in fake time: the tests take steps, run them and hand them back themselves.
#include "server/batching/steps/sequence_scheduler.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/base/retry.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/puppet_sequence.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

using Plan = PuppetSequence::Plan;
// The names in a step, in its order, and the rows of each.
using Shares = std::vector<std::pair<uint64_t, int>>;

constexpr absl::StatusCode kOk = absl::StatusCode::kOk;

absl::Duration Ms(double ms) { return absl::Milliseconds(ms); }

class SequenceSchedulerTest : public ::testing::Test {
 protected:
  SequenceSchedulerTest() {
    options_.max_step_tokens = 100;
    options_.max_step_sequences = 10;
    options_.rows_per_step = 8;
    options_.max_streams = 50;
    options_.max_waiting_rows = 1000;
  }

  // Runs everything to its end, and checks that each sequence has had one.
  void TearDown() override {
    if (scheduler_ == nullptr) return;
    full_ = false;
    while (!running_.empty()) Finish();
    scheduler_->Suspend(absl::UnavailableError("the test is over"));
    for (size_t device = 0; device < options_.workers.size(); ++device) {
      while (Take(static_cast<int>(device))) Finish();
    }
    for (const auto& [name, outcome] : outcomes_) {
      EXPECT_EQ(outcome->ends(), static_cast<int>(handles_.count(name))) << "sequence " << name;
    }
    const StepStats stats = scheduler_->stats();
    EXPECT_EQ(stats.running, 0);
    EXPECT_EQ(stats.waiting, 0);
    EXPECT_EQ(stats.paused, 0);
    EXPECT_EQ(stats.waiting_rows, 0);
    EXPECT_EQ(stats.running_steps, 0);
    EXPECT_TRUE(scheduler_->IsDone());
  }

  void Start() { scheduler_ = SequenceScheduler::Create(options_, &clock_).value(); }

  absl::Status Submit(const Plan& plan, Priority priority = Priority::kNormal,
                      absl::Duration timeout = absl::InfiniteDuration(), int least_steps = 1) {
    return SubmitTogether({plan}, timeout, least_steps, priority);
  }
  void Accept(const Plan& plan, Priority priority = Priority::kNormal,
              absl::Duration timeout = absl::InfiniteDuration()) {
    const absl::Status status = Submit(plan, priority, timeout);
    ASSERT_TRUE(status.ok()) << status;
  }

  // Submits all of them together.
  absl::Status SubmitTogether(const std::vector<Plan>& plans,
                              absl::Duration timeout = absl::InfiniteDuration(),
                              int least_steps = 1, Priority priority = Priority::kNormal) {
    std::vector<SequenceRequest> requests;
    for (const Plan& plan : plans) {
      SequenceRequest& request = requests.emplace_back();
      outcomes_[plan.name] = std::make_unique<PuppetOutcome>();
      auto sequence = std::make_unique<PuppetSequence>(plan, outcomes_[plan.name].get());
      puppets_[plan.name] = sequence.get();
      request.sequence = std::move(sequence);
      request.priority = priority;
      request.deadline = clock_.Now() + timeout;
      request.flow = flow_;
      request.least_steps = least_steps;
      request.branches = plan.branches;
    }
    auto handles = scheduler_->Submit(std::move(requests));
    retry_after_ = RetryAfterOf(handles.status()).value_or(absl::ZeroDuration());
    if (!handles.ok()) {
      for (const SequenceRequest& request : requests) {  // NOLINT: only if accepted
        EXPECT_NE(request.sequence, nullptr) << "consumed";
      }
      return handles.status();
    }
    for (size_t i = 0; i < plans.size(); ++i) {
      handles_[plans[i].name] = (*handles)[i];
      plans_[plans[i].name] = plans[i];
    }
    return absl::OkStatus();
  }

  bool Take(int device = 0) {
    std::unique_ptr<Step> step = scheduler_->TryTakeStep(device);
    if (step == nullptr) return false;
    running_.push_back(std::move(step));
    return true;
  }
  static uint64_t Name(const StepShare& share) {
    return static_cast<PuppetSequence*>(share.sequence)->plan().name;
  }
  Shares shares() {
    Shares shares;
    for (const StepShare& share : running_.back()->shares) {
      shares.emplace_back(Name(share), share.rows);
    }
    return shares;
  }
  // Takes a step and returns what is in it; empty if none may start.
  Shares TakeShares(int device = 0) { return Take(device) ? shares() : Shares(); }

  // Runs and hands back the step that was taken first, or another one.
  void Finish(absl::Duration compute = absl::ZeroDuration(), size_t index = 0,
              const absl::Status& status = absl::OkStatus()) {
    std::unique_ptr<Step> step = std::move(running_[index]);
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(index));
    for (StepShare& share : step->shares) {
      if (!status.ok()) continue;
      if (const auto it = errors_.find(Name(share)); it != errors_.end()) {
        share.status = it->second;
      } else if (full_ && !share.sequence->holds_state()) {
        share.status = absl::ResourceExhaustedError("no room");
      } else {
        static_cast<PuppetSequence*>(share.sequence)->Advance(share.rows);
      }
    }
    clock_.Advance(compute);
    scheduler_->FinishStep(std::move(step), status, compute);
  }
  // Takes, runs and hands back one step.
  Shares Run(absl::Duration compute = absl::ZeroDuration()) {
    Shares taken = TakeShares();
    if (!taken.empty()) Finish(compute);
    return taken;
  }
  void RunAll() {
    while (!Run().empty()) {
    }
  }

  absl::Time NextAt(int device = 0) { return scheduler_->Next(device, clock_.Now()).at; }
  const Flow* NextFlow() { return scheduler_->Next(0, clock_.Now()).flow; }

  size_t tokens(uint64_t name) { return outcomes_[name]->tokens().size(); }
  void ExpectEnd(uint64_t name, absl::StatusCode code) {
    ASSERT_EQ(outcomes_[name]->ends(), 1) << "sequence " << name;
    EXPECT_EQ(outcomes_[name]->status().code(), code) << outcomes_[name]->status();
    std::vector<uint64_t> expected = PuppetSequence::Expected(plans_[name]);
    if (code != kOk) expected.resize(tokens(name));
    EXPECT_EQ(outcomes_[name]->tokens(), expected) << "sequence " << name;
  }

  SchedulerOptions options_;
  FakeClock clock_;
  std::unique_ptr<SequenceScheduler> scheduler_;
  std::map<uint64_t, std::unique_ptr<PuppetOutcome>> outcomes_;
  std::map<uint64_t, PuppetSequence*> puppets_;  // valid until the end
  std::map<uint64_t, Plan> plans_;
  std::map<uint64_t, SequenceHandle> handles_;
  std::vector<std::unique_ptr<Step>> running_;
  absl::Duration retry_after_;
  FlowHandle flow_;    // of what is submitted
  bool full_ = false;  // nothing begins for want of memory
  std::map<uint64_t, absl::Status> errors_;
};

TEST_F(SequenceSchedulerTest, OneSequenceIsFedAndThenGoesOnTokenByToken) {
  Start();
  EXPECT_THAT(TakeShares(), IsEmpty());
  Accept({1, 30, 3});
  EXPECT_EQ(scheduler_->stats().waiting, 1);
  EXPECT_EQ(scheduler_->stats().waiting_rows, 30);
  EXPECT_THAT(Run(Ms(5)), ElementsAre(Pair(1, 30)));
  EXPECT_EQ(tokens(1), 1u);
  EXPECT_EQ(scheduler_->stats().running, 1);
  EXPECT_EQ(scheduler_->stats().waiting_rows, 0);
  EXPECT_THAT(Run(Ms(1)), ElementsAre(Pair(1, 1)));
  EXPECT_THAT(Run(Ms(1)), ElementsAre(Pair(1, 1)));
  ExpectEnd(1, kOk);
  EXPECT_EQ(outcomes_[1]->times().queue, Ms(5));
  EXPECT_EQ(outcomes_[1]->times().compute, Ms(7));
  EXPECT_THAT(TakeShares(), IsEmpty());
}

TEST_F(SequenceSchedulerTest, SequencesJoinAndLeaveAtAnyStep) {
  Start();
  Accept({1, 5, 4});
  Run();
  Accept({2, 6, 2});
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(2, 6)));
  Accept({3, 1, 1});
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(2, 1), Pair(3, 1)));
  ExpectEnd(2, kOk);
  ExpectEnd(3, kOk);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1)));
  ExpectEnd(1, kOk);
}

TEST_F(SequenceSchedulerTest, APromptTakesWholeStepsWhileNothingDecodes) {
  Start();
  Accept({1, 250, 2});
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 100)));
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 100)));
  Accept({2, 70, 1});
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 50), Pair(2, 50)));
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(2, 20)));
  ExpectEnd(1, kOk);
  ExpectEnd(2, kOk);
}

TEST_F(SequenceSchedulerTest, BesideNextTokensAPromptComesInPortions) {
  options_.max_step_tokens = 1000;
  Start();
  // A step of n rows takes 10 ms + n times 0.1 ms.
  const auto run = [this] {
    const Shares taken = TakeShares();
    int rows = 0;
    for (const auto& [name, of_sequence] : taken) rows += of_sequence;
    if (rows > 0) Finish(Ms(10 + 0.1 * rows));
    return taken;
  };
  Accept({1, 1, 500});
  run();
  Accept({2, 100, 1});
  // Nothing is known yet.
  EXPECT_THAT(run(), ElementsAre(Pair(1, 1), Pair(2, kLeastPortion)));
  while (outcomes_[2]->ends() == 0) run();
  for (int i = 0; i < 20; ++i) run();
  // Twice the 10 ms of a step of one row may be added.
  Accept({3, 900, 1});
  const Shares taken = run();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].second, 1);
  EXPECT_GT(taken[1].second, 150);
  EXPECT_LT(taken[1].second, 250);
}

TEST_F(SequenceSchedulerTest, NextTokensLeaveRoomForPrompts) {
  options_.max_step_tokens = 8;
  options_.max_step_sequences = 8;
  Start();
  for (uint64_t name = 1; name <= 8; ++name) Accept({name, 1, 20});
  Run();
  Accept({9, 4, 1});
  for (int i = 0; i < 4 && outcomes_[9]->ends() == 0; ++i) {
    const Shares taken = Run();
    EXPECT_GE(taken.size(), 6u);  // the others go on beside it
  }
  ExpectEnd(9, kOk);
}

TEST_F(SequenceSchedulerTest, WithRoomForOneRowPromptsAndNextTokensTakeTurns) {
  options_.max_step_tokens = 1;
  Start();
  Accept({1, 1, 5});
  Run();
  Accept({2, 3, 1});
  Shares all;
  while (outcomes_[1]->ends() == 0 || outcomes_[2]->ends() == 0) {
    const Shares taken = Run();
    ASSERT_EQ(taken.size(), 1u);
    all.push_back(taken[0]);
    ASSERT_LE(all.size(), 7u);
  }
  EXPECT_THAT(all, UnorderedElementsAre(Pair(1, 1), Pair(1, 1), Pair(1, 1), Pair(1, 1), Pair(2, 1),
                                        Pair(2, 1), Pair(2, 1)));
}

TEST_F(SequenceSchedulerTest, NoStreamStarvesWhenMoreAreReadyThanAStepTakes) {
  options_.max_streams = 100;
  Start();
  for (uint64_t name = 1; name <= 40; ++name) Accept({name, 1, 100});
  while (scheduler_->stats().waiting > 0) Run();
  std::map<uint64_t, int> steps;
  for (int i = 0; i < 40; ++i) {
    for (const auto& [name, rows] : Run()) ++steps[name];
  }
  ASSERT_EQ(steps.size(), 40u);
  for (const auto& [name, count] : steps) EXPECT_EQ(count, 10) << "sequence " << name;
}

TEST_F(SequenceSchedulerTest, ALongOneOfManyBranchesHasAStepForItself) {
  options_.max_step_tokens = 6;
  options_.max_step_sequences = 6;
  Start();
  Accept({1, 1, 3, 20});  // the runner divides it
  Accept({2, 1, 3});
  RunAll();
  ExpectEnd(1, kOk);
  ExpectEnd(2, kOk);
}

TEST_F(SequenceSchedulerTest, PromptsComeByPriorityDeadlineAndArrival) {
  Start();
  Accept({1, 90, 1});
  ASSERT_TRUE(Take());
  Accept({2, 60, 1});
  Accept({3, 60, 1}, Priority::kNormal, absl::Minutes(1));
  Accept({4, 60, 1}, Priority::kHigh);
  Accept({5, 60, 1}, Priority::kLow);
  Finish();
  EXPECT_THAT(Run(), ElementsAre(Pair(4, 60), Pair(3, 40)));
  EXPECT_THAT(Run(), ElementsAre(Pair(3, 20), Pair(2, 60), Pair(5, 20)));
}

TEST_F(SequenceSchedulerTest, AWaitingPromptRisesWithTime) {
  Start();
  Accept({1, 90, 1}, Priority::kLow);
  clock_.Advance(3 * options_.ageing_interval);
  Accept({2, 90, 1}, Priority::kHigh);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 90), Pair(2, 10)));
}

TEST_F(SequenceSchedulerTest, HighPriorityGoesFirstAmongNextTokensUntilOthersHaveWaited) {
  options_.max_step_sequences = 2;
  options_.max_step_tokens = 100;
  Start();
  Accept({1, 1, 100}, Priority::kLow);
  Run();
  Accept({2, 1, 100}, Priority::kHigh);
  Accept({3, 1, 100}, Priority::kHigh);
  while (tokens(2) == 0 || tokens(3) == 0) Run();
  EXPECT_THAT(Run(), UnorderedElementsAre(Pair(2, 1), Pair(3, 1)));
  EXPECT_THAT(Run(), UnorderedElementsAre(Pair(2, 1), Pair(3, 1)));
  clock_.Advance(3 * options_.ageing_interval);
  Run();
  // These have become ready after it by more than two levels.
  EXPECT_THAT(Run(), ::testing::Contains(Pair(1, 1)));
}

TEST_F(SequenceSchedulerTest, DeadlinesEndSequencesWaitingBetweenTokensAndPaused) {
  Start();
  Accept({1, 10, 100}, Priority::kNormal, Ms(50));
  Accept({2, 10, 100}, Priority::kNormal, Ms(60));
  Run(Ms(10));
  scheduler_->Pause(handles_[2]);
  ASSERT_TRUE(Take());  // of 1
  Accept({3, 10, 100}, Priority::kNormal, Ms(20));
  clock_.Advance(Ms(35));
  EXPECT_THAT(TakeShares(), IsEmpty());  // one worker
  ExpectEnd(3, absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(outcomes_[3]->status().message()), HasSubstr("before the first token"));
  EXPECT_EQ(outcomes_[1]->ends(), 0);
  Finish(Ms(10));  // its deadline has passed meanwhile
  ExpectEnd(1, absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(outcomes_[1]->status().message()), HasSubstr("between two tokens"));
  EXPECT_EQ(tokens(1), 2u);
  clock_.Advance(Ms(10));
  EXPECT_THAT(TakeShares(), IsEmpty());
  ExpectEnd(2, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(scheduler_->stats().expired, 3);
  EXPECT_EQ(Submit({4, 1, 1}, Priority::kNormal, absl::ZeroDuration()).code(),
            absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SequenceSchedulerTest, ASequenceThatEndsInTheStepOfItsDeadlineIsAnswered) {
  Start();
  Accept({1, 10, 1}, Priority::kNormal, Ms(50));
  Run(Ms(60));
  ExpectEnd(1, kOk);
}

TEST_F(SequenceSchedulerTest, CancelledWhileWaitingRunningAndPaused) {
  Start();
  Accept({1, 10, 100});
  Accept({2, 10, 100});
  Run();
  scheduler_->Pause(handles_[2]);
  ASSERT_TRUE(Take());
  Accept({3, 10, 100});
  scheduler_->Cancel(handles_[3]);
  ExpectEnd(3, absl::StatusCode::kCancelled);
  scheduler_->Cancel(handles_[2]);
  ExpectEnd(2, absl::StatusCode::kCancelled);
  scheduler_->Cancel(handles_[1]);
  EXPECT_EQ(outcomes_[1]->ends(), 0);
  Finish();
  ExpectEnd(1, absl::StatusCode::kCancelled);
  EXPECT_THAT(TakeShares(), IsEmpty());
  for (const auto& [name, handle] : handles_) scheduler_->Cancel(handle);  // once more
  EXPECT_EQ(scheduler_->stats().cancelled, 3);
}

TEST_F(SequenceSchedulerTest, APausedSequenceTakesNoStepUntilItIsResumed) {
  Start();
  Accept({1, 10, 4});
  Accept({2, 10, 9});
  Run();
  ASSERT_TRUE(Take());
  scheduler_->Pause(handles_[1]);
  scheduler_->Pause(handles_[1]);
  EXPECT_EQ(scheduler_->stats().paused, 0);  // it is still in a step
  Finish();
  EXPECT_EQ(tokens(1), 2u);
  EXPECT_EQ(scheduler_->stats().paused, 1);
  EXPECT_EQ(scheduler_->stats().running, 1);
  EXPECT_THAT(Run(), ElementsAre(Pair(2, 1)));
  scheduler_->Resume(handles_[1]);
  EXPECT_THAT(Run(), ElementsAre(Pair(2, 1), Pair(1, 1)));
  // Before its first step, too.
  Accept({3, 10, 1});
  scheduler_->Pause(handles_[3]);
  EXPECT_EQ(scheduler_->stats().waiting_rows, 10);
  Run();
  EXPECT_EQ(tokens(3), 0u);
  scheduler_->Resume(handles_[3]);
  RunAll();
  for (uint64_t name = 1; name <= 3; ++name) ExpectEnd(name, kOk);
  scheduler_->Pause(handles_[1]);  // after the end
  scheduler_->Resume(handles_[1]);
}

TEST_F(SequenceSchedulerTest, BoundsOnStreamsAndOnWaitingTokens) {
  options_.max_streams = 3;
  Start();
  EXPECT_EQ(Submit({1, 1001, 1}).code(), absl::StatusCode::kInvalidArgument);
  Accept({2, 600, 1});
  Accept({3, 400, 1});
  absl::Status status = Submit({4, 1, 1});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kQueueFull);
  EXPECT_EQ(retry_after_, Ms(100));
  Accept({4, 0, 1});
  status = Submit({5, 0, 1});
  EXPECT_EQ(GetRejectReason(status), RejectReason::kStreams);
  EXPECT_THAT(std::string(status.message()), HasSubstr("as many texts of this model"));
  EXPECT_EQ(scheduler_->CheckAdmission(1, 1, Priority::kHigh, absl::InfiniteFuture()).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(scheduler_->stats().rejected[RejectReason::kQueueFull], 1);
  EXPECT_EQ(scheduler_->stats().rejected[RejectReason::kStreams], 2);
}

// A plan that is fed whole.
Plan Whole(uint64_t name, int64_t prompt, int tokens, int branches = 1) {
  Plan plan;
  plan.name = name;
  plan.prompt = prompt;
  plan.tokens = tokens;
  plan.branches = branches;
  plan.whole = true;
  return plan;
}

TEST_F(SequenceSchedulerTest, WhatIsFedWholeComesInOneStepOrWaitsForTheNext) {
  Start();
  Accept(Whole(1, 60, 1));
  Accept(Whole(2, 60, 1));
  Accept(Whole(3, 40, 1));
  // The second does not fit beside the first, and the third waits behind it.
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 60)));
  EXPECT_THAT(Run(), ElementsAre(Pair(2, 60), Pair(3, 40)));
  for (uint64_t name = 1; name <= 3; ++name) ExpectEnd(name, kOk);
}

TEST_F(SequenceSchedulerTest, WhatIsFedWholeIsNotCutByThePortionsBesideNextTokens) {
  options_.max_step_tokens = 200;
  Start();
  Accept({1, 1, 50});
  Run();
  Accept(Whole(2, 90, 1));
  Accept(Whole(3, 90, 1));
  Accept({4, 200, 1});
  // A portion has kLeastPortion rows; the first that is fed whole may have more.
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(2, 90)));
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(3, 90)));
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(4, kLeastPortion)));
  // Smaller ones share a portion.
  scheduler_->Cancel(handles_[4]);
  Accept(Whole(5, 20, 1));
  Accept(Whole(6, 12, 1));
  Accept(Whole(7, 1, 1));
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(5, 20), Pair(6, 12)));
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(7, 1)));
}

TEST_F(SequenceSchedulerTest, NextTokensLeaveRoomForAllOfWhatIsFedWhole) {
  options_.max_step_tokens = 20;
  options_.max_step_sequences = 20;
  Start();
  for (uint64_t name = 1; name <= 18; ++name) Accept({name, 1, 20});
  Run();
  Accept(Whole(20, 10, 1));
  const Shares taken = Run();
  EXPECT_THAT(taken, ::testing::SizeIs(11));
  EXPECT_THAT(taken, ::testing::Contains(Pair(20, 10)));
  ExpectEnd(20, kOk);
}

TEST_F(SequenceSchedulerTest, WhatFillsMostOfAStepTakesTurnsWithNextTokens) {
  Start();
  Accept({1, 1, 4});
  Run();
  for (uint64_t name = 2; name <= 4; ++name) Accept(Whole(name, 100, 1));
  std::vector<Shares> steps;
  while (outcomes_[4]->ends() == 0) {
    steps.push_back(Run());
    ASSERT_THAT(steps.back(), ::testing::SizeIs(1));
  }
  EXPECT_THAT(steps, ElementsAre(ElementsAre(Pair(2, 100)), ElementsAre(Pair(1, 1)),
                                 ElementsAre(Pair(3, 100)), ElementsAre(Pair(1, 1)),
                                 ElementsAre(Pair(4, 100))));
}

TEST_F(SequenceSchedulerTest, WhatIsFedWholeMustFitIntoAStep) {
  Start();
  const absl::Status status = Submit(Whole(1, 101, 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "prompt: expected at most 100 tokens each (max_batch_tokens), found 101");
  Accept(Whole(2, 100, 1));
  RunAll();
  ExpectEnd(2, kOk);
}

TEST_F(SequenceSchedulerTest, WhatIsFedWholeIsFedAgainAfterALostDeviceAndForWantOfMemory) {
  options_.workers = {1, 1};
  Start();
  Accept(Whole(1, 50, 3));
  ASSERT_TRUE(Take(0));
  scheduler_->LoseDevice(0, absl::UnavailableError("gone"));
  Finish(Ms(1), 0, absl::UnavailableError("gone"));
  full_ = true;
  ASSERT_TRUE(Take(1));
  EXPECT_THAT(shares(), ElementsAre(Pair(1, 50)));
  Finish();
  full_ = false;
  clock_.Advance(kAllocationRetry);
  ASSERT_TRUE(Take(1));
  EXPECT_THAT(shares(), ElementsAre(Pair(1, 50)));
  Finish();
  while (Take(1)) Finish();
  ExpectEnd(1, kOk);
}

TEST_F(SequenceSchedulerTest, SubmittedTogetherAllAreAcceptedOrNone) {
  options_.max_streams = 4;
  options_.max_waiting_sequences = 3;
  Start();
  EXPECT_EQ(SubmitTogether({Whole(1, 600, 1)}).code(), absl::StatusCode::kInvalidArgument);
  absl::Status status = SubmitTogether({{1, 600, 1}, {2, 600, 1}});
  EXPECT_EQ(status.message(),
            "prompt: expected at most 1000 tokens (max_queue_tokens), found 1200");
  status = SubmitTogether({{1, 1, 1}, {2, 1, 1}, {3, 1, 1}, {4, 1, 1}});
  EXPECT_EQ(status.message(), "prompt: expected at most 3 (max_queue_sequences), found 4");
  Accept({1, 1, 1});
  Accept({2, 1, 1});
  status = SubmitTogether({{3, 1, 1}, {4, 1, 1}});
  EXPECT_EQ(GetRejectReason(status), RejectReason::kQueueFull) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("at most 1000 tokens and 3 sequences may wait"));
  EXPECT_EQ(retry_after_, Ms(100));
  EXPECT_EQ(scheduler_->stats().rejected[RejectReason::kQueueFull], 1);
  EXPECT_EQ(scheduler_->stats().waiting, 2);
  ASSERT_TRUE(Take());
  // What has begun does not wait.
  EXPECT_TRUE(SubmitTogether({{3, 1, 1}, {4, 1, 1}}).ok());
  EXPECT_EQ(GetRejectReason(SubmitTogether({{5, 1, 1}})), RejectReason::kStreams);
  EXPECT_EQ(
      GetRejectReason(scheduler_->CheckAdmission(2, 2, Priority::kLow, absl::InfiniteFuture())),
      RejectReason::kStreams);
  Finish();
  RunAll();
  for (uint64_t name = 1; name <= 4; ++name) ExpectEnd(name, kOk);
}

TEST_F(SequenceSchedulerTest, NoMoreBeginThanDecodeTogether) {
  options_.max_begun_branches = 6;
  Start();
  ASSERT_TRUE(SubmitTogether({Whole(1, 2, 3, 4), Whole(2, 2, 2, 2), Whole(3, 2, 2, 3)}).ok());
  ASSERT_TRUE(SubmitTogether({Whole(4, 2, 2, 1)}).ok());
  // 4 and 2 branches; the third waits for them, and what came later waits behind it.
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 2), Pair(2, 2)));
  EXPECT_EQ(scheduler_->stats().running, 2);
  EXPECT_EQ(scheduler_->stats().waiting, 2);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 4), Pair(2, 2)));
  ExpectEnd(2, kOk);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 4)));
  ExpectEnd(1, kOk);
  EXPECT_THAT(Run(), ElementsAre(Pair(3, 2), Pair(4, 2)));
  RunAll();
  ExpectEnd(3, kOk);
  ExpectEnd(4, kOk);
}

TEST_F(SequenceSchedulerTest, AHighPriorityBeginsBesideAsManyAsMayBegin) {
  options_.max_begun_branches = 4;
  Start();
  ASSERT_TRUE(SubmitTogether({Whole(1, 2, 9, 4)}).ok());
  Run();
  ASSERT_TRUE(SubmitTogether({Whole(2, 2, 1, 1)}).ok());
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 4)));
  Accept(Whole(3, 2, 1, 1), Priority::kHigh);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 4), Pair(3, 2)));
  ExpectEnd(3, kOk);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 4)));
}

TEST_F(SequenceSchedulerTest, OneOfMoreBranchesThanMayBeginBeginsAlone) {
  options_.max_begun_branches = 2;
  Start();
  ASSERT_TRUE(SubmitTogether({Whole(1, 2, 2, 5), Whole(2, 2, 1, 1)}).ok());
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 2)));
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 5)));
  EXPECT_THAT(Run(), ElementsAre(Pair(2, 2)));
  ExpectEnd(1, kOk);
  ExpectEnd(2, kOk);
}

TEST_F(SequenceSchedulerTest, WhatGaveUpItsMemoryBeginsAgainAlthoughOthersWait) {
  options_.max_begun_branches = 2;
  options_.workers = {1, 1};
  Start();
  ASSERT_TRUE(SubmitTogether({Whole(1, 2, 9, 2), Whole(2, 2, 9, 2), Whole(3, 2, 9, 2)}).ok());
  ASSERT_TRUE(Take(0));
  ASSERT_TRUE(Take(1));
  Finish();
  Finish();
  scheduler_->LoseDevice(0, absl::UnavailableError("gone"));
  while (Take(1)) Finish();
  for (uint64_t name = 1; name <= 3; ++name) ExpectEnd(name, kOk);
  EXPECT_EQ(scheduler_->stats().replayed, 1);
}

TEST_F(SequenceSchedulerTest, WithResultsAtTheEndTheTimeOfAllStepsCounts) {
  options_.result_at_end = true;
  options_.max_step_tokens = 10;
  Start();
  // 1 ms a row: 10 steps of two rows after a row that is fed.
  for (uint64_t name = 100; name < 110; ++name) {
    ASSERT_TRUE(SubmitTogether({Whole(name, 1 + static_cast<int64_t>(name % 3), 11, 2)},
                               absl::Seconds(9), 10)
                    .ok());
    for (Shares taken = TakeShares(); !taken.empty(); taken = TakeShares()) {
      Finish(Ms(taken[0].second));
    }
    ExpectEnd(name, kOk);
  }
  ASSERT_TRUE(SubmitTogether({Whole(1, 1, 11, 2)}, absl::InfiniteDuration(), 10).ok());
  ASSERT_TRUE(Take());
  // Its own 10 steps take 20 ms alone and as long as 40 rows beside the other.
  absl::Status status = SubmitTogether({Whole(2, 1, 11, 2)}, Ms(30), 10);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kDeadline) << status;
  EXPECT_GT(retry_after_, Ms(15));
  EXPECT_TRUE(SubmitTogether({Whole(3, 1, 11, 2)}, Ms(100), 10).ok());
  // Many together take as long as their rows.
  std::vector<Plan> many;
  for (uint64_t name = 10; name < 20; ++name) many.push_back(Whole(name, 1, 11, 2));
  status = SubmitTogether(many, Ms(200), 10);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kDeadline) << status;
  EXPECT_TRUE(SubmitTogether(many, Ms(600), 10).ok());
  Finish(Ms(1));
}

TEST_F(SequenceSchedulerTest, RefusesWhatWouldComeTooLateByTheMeasuredSpeed) {
  Start();
  // 1 ms a row.
  for (uint64_t name = 100; name < 110; ++name) {
    Accept({name, static_cast<int64_t>(10 + name % 3 * 30), 1});
    const int rows = TakeShares()[0].second;
    Finish(Ms(rows));
  }
  Accept({1, 90, 100}, Priority::kHigh);  // ahead of the others
  absl::Status status = Submit({2, 50, 1}, Priority::kNormal, Ms(100));
  EXPECT_EQ(GetRejectReason(status), RejectReason::kDeadline) << status;
  EXPECT_GT(retry_after_, Ms(50));
  EXPECT_TRUE(Submit({3, 50, 1}, Priority::kNormal, Ms(400)).ok());
  EXPECT_EQ(
      GetRejectReason(scheduler_->CheckAdmission(50, 1, Priority::kNormal, clock_.Now() + Ms(100))),
      RejectReason::kDeadline);
  // What must have many tokens is judged by all of them.
  Run(Ms(90));
  while (tokens(1) < 20) Run(Ms(5));
  ASSERT_TRUE(Submit({4, 1, 1}, Priority::kNormal, Ms(200)).ok());
  status = Submit({5, 1, 1000}, Priority::kNormal, Ms(200), /*least_steps=*/100);
  EXPECT_EQ(GetRejectReason(status), RejectReason::kDeadline) << status;
}

TEST_F(SequenceSchedulerTest, AfterManyNextTokensAPromptIsStillJudgedByThePrompts) {
  options_.max_step_tokens = 1000;
  Start();
  for (uint64_t name = 100; name < 110; ++name) {
    Accept({name, static_cast<int64_t>(100 + name % 3 * 300), 1});
    Run(Ms(10));
  }
  Accept({1, 1, 1000});
  for (int i = 0; i < 300; ++i) Run(Ms(5));
  // By the time of one row alone it would take seconds.
  EXPECT_TRUE(Submit({2, 700, 1}, Priority::kNormal, absl::Seconds(1)).ok());
}

TEST_F(SequenceSchedulerTest, AStepThatHasNoMemoryForSomeLeavesThemWaiting) {
  Start();
  Accept({1, 1, 20});
  Run();
  full_ = true;
  Accept({2, 3, 2});
  Accept({3, 3, 2});
  Run();
  Accept({4, 3, 2});  // waits behind them
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1)));
  EXPECT_EQ(scheduler_->stats().waiting_rows, 9);
  // Tried again after a while, one at a time.
  clock_.Advance(kAllocationRetry);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1), Pair(2, 3)));
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1)));
  // And as soon as another one has ended.
  scheduler_->Cancel(handles_[1]);
  full_ = false;
  EXPECT_THAT(Run(), ElementsAre(Pair(2, 3)));
  RunAll();
  for (uint64_t name = 2; name <= 4; ++name) ExpectEnd(name, kOk);
}

TEST_F(SequenceSchedulerTest, WhenAllWaitForMemoryTheLastToArriveMakesRoom) {
  Start();
  for (uint64_t name = 1; name <= 3; ++name) Accept({name, 2, 5});
  Run();
  for (uint64_t name = 1; name <= 3; ++name) {
    errors_[name] = absl::ResourceExhaustedError("no room");
  }
  Run();
  EXPECT_EQ(puppets_[3]->rewinds(), 0);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1)));  // at once, since it may have been for a moment
  errors_.clear();
  EXPECT_EQ(puppets_[3]->rewinds(), 1);
  EXPECT_EQ(puppets_[2]->rewinds(), 0);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1)));
  RunAll();
  for (uint64_t name = 1; name <= 3; ++name) ExpectEnd(name, kOk);
  EXPECT_EQ(scheduler_->stats().replayed, 1);
}

TEST_F(SequenceSchedulerTest, WithoutAnyMemoryASequenceEndsAfterAWhile) {
  Start();
  full_ = true;
  Accept({1, 1, 1});
  Run();
  clock_.Advance(kLoneWait / 2);
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1)));
  EXPECT_EQ(outcomes_[1]->ends(), 0);
  EXPECT_THAT(Run(), IsEmpty());
  clock_.Advance(kLoneWait / 2);
  Run();
  ExpectEnd(1, absl::StatusCode::kResourceExhausted);
}

TEST_F(SequenceSchedulerTest, AnAllocationThatFailsInAStepLosesNothing) {
  Start();
  for (uint64_t name = 1; name <= 9; ++name) Accept({name, 2, 5});
  Run();
  ASSERT_TRUE(Take());
  Finish(Ms(1), 0, absl::ResourceExhaustedError("memory"));
  for (int i = 0; i < 100 && outcomes_[9]->ends() == 0; ++i) {
    Run(Ms(1));
    clock_.Advance(kAllocationRetry);
  }
  for (uint64_t name = 1; name <= 9; ++name) ExpectEnd(name, kOk);
}

TEST_F(SequenceSchedulerTest, AnErrorEndsOnlyItsSequence) {
  Start();
  Accept({1, 2, 3});
  Accept({2, 2, 3});
  Run();
  errors_[1] = absl::InvalidArgumentError("no");
  Run();
  ExpectEnd(1, absl::StatusCode::kInvalidArgument);
  RunAll();
  ExpectEnd(2, kOk);
}

TEST_F(SequenceSchedulerTest, SuspendedSequencesFinishWhatTheirStateNeeds) {
  Start();
  Accept({1, 2, 9});
  Accept({2, 2, 9});
  Run();
  scheduler_->Pause(handles_[2]);
  Accept({3, 200, 9});
  Run();
  scheduler_->Close();
  EXPECT_EQ(Submit({4, 1, 1}).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(outcomes_[1]->ends(), 0);
  ASSERT_TRUE(Take());  // 1 and a portion of 3
  scheduler_->Suspend(absl::UnavailableError("stopping"));
  EXPECT_EQ(outcomes_[3]->ends(), 0);
  Finish();
  ExpectEnd(3, absl::StatusCode::kUnavailable);
  EXPECT_FALSE(outcomes_[3]->has_state());
  EXPECT_FALSE(scheduler_->IsDone());
  EXPECT_THAT(Run(), UnorderedElementsAre(Pair(1, 1), Pair(2, 1)));
  for (uint64_t name = 1; name <= 2; ++name) {
    ExpectEnd(name, absl::StatusCode::kUnavailable);
    EXPECT_TRUE(outcomes_[name]->has_state());
  }
  EXPECT_EQ(scheduler_->TryTakeStep(), nullptr);
  EXPECT_TRUE(scheduler_->IsDone());
}

TEST_F(SequenceSchedulerTest, ASequenceThatEndsByItselfWhileItIsSuspendedIsOk) {
  Start();
  Accept({1, 2, 2});
  Run();
  ASSERT_TRUE(Take());
  scheduler_->Suspend(absl::UnavailableError("stopping"));
  Finish();
  ExpectEnd(1, kOk);
}

TEST_F(SequenceSchedulerTest, FewSequencesStayTogetherAndManyAreDivided) {
  options_.workers = {2};
  options_.max_step_sequences = 100;
  Start();
  for (uint64_t name = 1; name <= 4; ++name) Accept({name, 1, 100});
  Run();
  EXPECT_EQ(TakeShares().size(), 4u);
  Accept({5, 1, 100});
  EXPECT_THAT(TakeShares(), IsEmpty());  // joins the others at their next step
  Finish();
  EXPECT_EQ(Run().size(), 5u);
  for (uint64_t name = 6; name <= 20; ++name) Accept({name, 1, 100});
  EXPECT_EQ(TakeShares().size(), 5u);
  EXPECT_EQ(TakeShares().size(), 15u);  // their prompts
  while (!running_.empty()) Finish();
  EXPECT_EQ(TakeShares().size(), 10u);
  EXPECT_EQ(TakeShares().size(), 10u);
  EXPECT_THAT(TakeShares(), IsEmpty());
}

TEST_F(SequenceSchedulerTest, ASecondWorkerTakesThePrompts) {
  options_.workers = {2};
  Start();
  Accept({1, 1, 100});
  Run();
  Accept({2, 80, 1});
  EXPECT_THAT(TakeShares(), ElementsAre(Pair(1, 1)));
  EXPECT_THAT(TakeShares(), ElementsAre(Pair(2, 80)));
}

TEST_F(SequenceSchedulerTest, ALostDevicesSequencesGoOnElsewhere) {
  options_.workers = {1, 1};
  Start();
  for (uint64_t name = 1; name <= 3; ++name) Accept({name, 2, 6});
  ASSERT_THAT(TakeShares(0), ElementsAre(Pair(1, 2), Pair(2, 2), Pair(3, 2)));
  Finish();
  ASSERT_TRUE(Take(0));
  Finish();
  scheduler_->Pause(handles_[3]);
  ASSERT_TRUE(Take(0));
  scheduler_->LoseDevice(0, absl::UnavailableError("gone"));
  Finish(Ms(1), 0, absl::UnavailableError("gone"));
  EXPECT_THAT(TakeShares(0), IsEmpty());
  EXPECT_EQ(NextAt(0), absl::InfiniteFuture()) << "nothing is ever done there again";
  EXPECT_LE(NextAt(1), clock_.Now());
  EXPECT_EQ(puppets_[3]->rewinds(), 1);
  ASSERT_THAT(TakeShares(1), ElementsAre(Pair(1, 4), Pair(2, 4)));
  Finish();
  scheduler_->Resume(handles_[3]);
  while (Take(1)) Finish();
  for (uint64_t name = 1; name <= 3; ++name) ExpectEnd(name, kOk);
  EXPECT_EQ(scheduler_->stats().replayed, 3);
}

TEST_F(SequenceSchedulerTest, ASequenceThatTakesTwoDevicesAlongEnds) {
  options_.workers = {1, 1, 1};
  Start();
  Accept({1, 2, 6});
  ASSERT_TRUE(Take(0));
  scheduler_->LoseDevice(0, absl::UnavailableError("gone"));
  Finish(Ms(1), 0, absl::UnavailableError("gone"));
  ASSERT_TRUE(Take(1));
  scheduler_->LoseDevice(1, absl::UnavailableError("gone"));
  Finish(Ms(1), 0, absl::UnavailableError("gone"));
  ExpectEnd(1, absl::StatusCode::kUnavailable);
  EXPECT_TRUE(Submit({2, 1, 1}).ok());
  ASSERT_TRUE(Take(2));
}

TEST_F(SequenceSchedulerTest, WithoutADeviceEverythingEnds) {
  Start();
  Accept({1, 2, 6});
  Run();
  Accept({2, 2, 6});
  ASSERT_TRUE(Take());
  Accept({3, 2, 6});
  scheduler_->LoseDevice(0, absl::UnavailableError("gone"));
  ExpectEnd(3, absl::StatusCode::kUnavailable);
  Finish(Ms(1), 0, absl::UnavailableError("gone"));
  ExpectEnd(1, absl::StatusCode::kUnavailable);
  ExpectEnd(2, absl::StatusCode::kUnavailable);
  const absl::Status status = Submit({4, 1, 1});
  EXPECT_EQ(GetRejectReason(status), RejectReason::kNoWorker);
  EXPECT_THAT(std::string(status.message()), HasSubstr("gone"));
}

TEST_F(SequenceSchedulerTest, NextSaysThatAStepMayStart) {
  Start();
  EXPECT_EQ(NextAt(), absl::InfiniteFuture());
  EXPECT_FALSE(scheduler_->IsDone()) << "it is not closed";
  Accept({1, 2, 3});
  EXPECT_LE(NextAt(), clock_.Now());
  ASSERT_TRUE(Take());
  EXPECT_EQ(NextAt(), absl::InfiniteFuture()) << "a step runs, and nothing else waits";
  Finish();
  EXPECT_LE(NextAt(), clock_.Now());
  scheduler_->Pause(handles_[1]);
  EXPECT_EQ(NextAt(), absl::InfiniteFuture());
  scheduler_->Resume(handles_[1]);
  EXPECT_LE(NextAt(), clock_.Now());
  scheduler_->Close();
  RunAll();
  EXPECT_EQ(NextAt(), absl::InfiniteFuture());
  EXPECT_TRUE(scheduler_->IsDone());
}

TEST_F(SequenceSchedulerTest, NextIsADeadlineOfWhatDoesNotRun) {
  Start();
  const absl::Time start = clock_.Now();
  Accept({1, 2, 9}, Priority::kNormal, Ms(30));
  Run();
  scheduler_->Pause(handles_[1]);
  EXPECT_EQ(NextAt(), start + Ms(30));
  Accept({2, 2, 9}, Priority::kNormal, Ms(20));
  ASSERT_TRUE(Take());
  clock_.Advance(Ms(20));
  EXPECT_EQ(NextAt(), start + Ms(30)) << "what is in a step ends with it";
  clock_.Advance(Ms(10));
  EXPECT_LE(NextAt(), clock_.Now());
  EXPECT_FALSE(Take());
  ExpectEnd(1, absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(NextAt(), absl::InfiniteFuture());
  Finish();
  ExpectEnd(2, absl::StatusCode::kDeadlineExceeded);
}

TEST_F(SequenceSchedulerTest, NextIsWhenMemoryIsAskedForAgain) {
  Start();
  full_ = true;
  Accept({1, 1, 1});
  for (int i = 0; i < 9 && NextAt() <= clock_.Now(); ++i) Run();
  EXPECT_EQ(NextAt(), clock_.Now() + kAllocationRetry);
  clock_.Advance(kAllocationRetry);
  EXPECT_LE(NextAt(), clock_.Now());
  full_ = false;
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 1)));
  ExpectEnd(1, kOk);
  EXPECT_EQ(NextAt(), absl::InfiniteFuture());
}

TEST_F(SequenceSchedulerTest, NextNamesWhoseRowsAStepBeginsWith) {
  Start();
  const auto many = std::make_shared<Flow>("many");
  const auto few = std::make_shared<Flow>("few");
  flow_ = many;
  for (uint64_t name = 1; name <= 4; ++name) Accept({name, 100, 20});
  EXPECT_EQ(NextFlow(), many.get());
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 100)));
  scheduler_->Pause(handles_[1]);
  flow_ = few;
  Accept({100, 30, 20});
  EXPECT_EQ(NextFlow(), few.get()) << "who has had less";
  EXPECT_EQ(NextFlow(), few.get()) << "to ask changes nothing";
  EXPECT_THAT(Run(), ElementsAre(Pair(100, 30), Pair(2, 70)));
  EXPECT_EQ(NextFlow(), few.get()) << "what decodes comes before what is fed";
  scheduler_->Pause(handles_[100]);
  EXPECT_EQ(NextFlow(), many.get());
}

TEST_F(SequenceSchedulerTest, TellsOfWorkAndOfTheEnd) {
  Start();
  int told = 0;
  scheduler_->OnWork([&] {
    ++told;
    scheduler_->stats();  // without the lock
  });
  // Whether it has told anything since the last time.
  const auto has_told = [&told] { return std::exchange(told, 0) > 0; };
  Accept({1, 2, 9}, Priority::kNormal, Ms(30));
  EXPECT_TRUE(has_told());
  ASSERT_TRUE(Take());
  has_told();
  Finish();
  EXPECT_FALSE(has_told()) << "its worker looks by itself";
  scheduler_->Pause(handles_[1]);
  has_told();
  scheduler_->Resume(handles_[1]);
  EXPECT_TRUE(has_told());
  ASSERT_TRUE(Take());
  has_told();
  Accept({2, 200, 1}, Priority::kNormal, Ms(20));
  EXPECT_TRUE(has_told()) << "a deadline that comes before the others";
  Finish();
  scheduler_->Close();
  EXPECT_TRUE(has_told());
  scheduler_->Cancel(handles_[1]);
  has_told();
  scheduler_->Cancel(handles_[2]);
  EXPECT_TRUE(has_told()) << "nothing is left";
  EXPECT_TRUE(scheduler_->IsDone());
  scheduler_->OnWork([] {});
}

TEST_F(SequenceSchedulerTest, TellsOtherDevicesOfWhatALostOneLeaves) {
  options_.workers = {1, 1};
  Start();
  int told = 0;
  scheduler_->OnWork([&told] { ++told; });
  Accept({1, 2, 3});
  ASSERT_TRUE(Take(0));
  Finish();
  EXPECT_EQ(NextAt(1), absl::InfiniteFuture()) << "a sequence stays on its device";
  told = 0;
  scheduler_->LoseDevice(0, absl::UnavailableError("gone"));
  EXPECT_GT(told, 0);
  EXPECT_EQ(NextAt(0), absl::InfiniteFuture());
  EXPECT_LE(NextAt(1), clock_.Now());
  while (Take(1)) Finish();
  ExpectEnd(1, kOk);
  scheduler_->OnWork([] {});
}

TEST_F(SequenceSchedulerTest, SequencesBeginOnTheDeviceWithFewest) {
  options_.workers = {1, 1};
  options_.max_streams = 100;
  options_.max_step_sequences = 100;
  Start();
  for (uint64_t name = 1; name <= 30; ++name) Accept({name, 1, 100});
  const size_t first = TakeShares(0).size();
  EXPECT_LT(first, 15u);
  Finish();
  const size_t second = TakeShares(1).size();
  Finish();
  EXPECT_LE(second, first + 9);
  EXPECT_GE(second + 9, first);
}

TEST(SchedulerOptionsTest, NamesTheOptionThatIsOutOfRange) {
  using Options = SchedulerOptions;
  const FakeClock clock;
  const auto expect = [&clock](auto option, const auto& value, const std::string& text) {
    Options options;
    options.*option = value;
    const absl::Status status = SequenceScheduler::Create(options, &clock).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
  };
  expect(&Options::max_step_tokens, 0, "max_step_tokens: expected at least 1, found 0");
  expect(&Options::max_step_sequences, 0, "max_step_sequences");
  expect(&Options::rows_per_step, 0, "rows_per_step");
  expect(&Options::max_streams, 0, "max_streams");
  expect(&Options::max_waiting_rows, 0, "max_waiting_rows");
  expect(&Options::max_waiting_sequences, 0, "max_waiting_sequences");
  expect(&Options::max_begun_branches, 0, "max_begun_branches");
  expect(&Options::ageing_interval, absl::ZeroDuration(), "ageing_interval");
  expect(&Options::workers, std::vector<int>{0, 0}, "workers");
}

// A caller with many rows does not hold up one with few.
TEST_F(SequenceSchedulerTest, CallersShareStepsByRows) {
  options_.max_step_sequences = 64;
  options_.max_step_tokens = 64;
  Start();
  const auto many = std::make_shared<Flow>("many");
  const auto few = std::make_shared<Flow>("few");
  flow_ = many;
  for (uint64_t name = 1; name <= 8; ++name) Accept({name, 1, 20, 32});
  for (int i = 0; i < 8; ++i) Run();  // they begin
  flow_ = few;
  Accept({100, 1, 20, 1});
  int tokens = 0;
  for (int i = 0; i < 6; ++i) {
    for (const auto& [name, rows] : Run()) tokens += name == 100 ? 1 : 0;
  }
  EXPECT_EQ(tokens, 6);  // one of every step, although the others need four for one row each
}

// Two callers in prefill get half each, whoever came first.
TEST_F(SequenceSchedulerTest, PromptsOfCallersTakeTurns) {
  Start();
  flow_ = std::make_shared<Flow>("many");
  for (uint64_t name = 1; name <= 8; ++name) Accept({name, 100, 1});
  flow_ = std::make_shared<Flow>("few");
  Accept({100, 50, 1});
  EXPECT_THAT(Run(), ElementsAre(Pair(1, 100)));
  EXPECT_THAT(Run(), ElementsAre(Pair(100, 50), Pair(2, 50)));
}

// One caller does not keep others from what max_streams allows.
TEST_F(SequenceSchedulerTest, OneCallerDoesNotTakeAllStreams) {
  options_.max_streams = 8;
  Start();
  flow_ = std::make_shared<Flow>("many");
  for (uint64_t name = 1; name <= 8; ++name) Accept({name, 1, 5});
  EXPECT_EQ(Submit({9, 1, 5}).code(), absl::StatusCode::kResourceExhausted);
  flow_ = std::make_shared<Flow>("few");
  Accept({100, 1, 5});
  Accept({101, 1, 5});
  EXPECT_EQ(Submit({102, 1, 5}).code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace sru::server::batching
