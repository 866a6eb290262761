#include "server/batching/fair_share.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/queue/flow.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kTurn = absl::Microseconds(200);
constexpr int kEndless = std::numeric_limits<int>::max();
constexpr size_t kMostNested = 2;

// Workers that take batches from sources and interrupt them at the end of a turn, as those of
// worker_pool.h do. All of them compute for a turn at a time.
class FairShareTest : public ::testing::Test {
 protected:
  struct Source {
    FlowHandle flow;
    std::vector<const int*> models;  // of its batches, in turn
    int turns = 0;                   // of a batch
    int places = 1;                  // batches at a time
    int batches = kEndless;          // that have not begun
    int running = 0;
    size_t begun = 0;
    absl::Time since;
    absl::Duration spent;
    absl::Duration longest_wait;

    bool waits() const { return batches > 0 && running < places; }
    const int* model() const { return models[begun % models.size()]; }
  };

  explicit FairShareTest(int workers = 1) {
    for (int i = 0; i < workers; ++i) workers_.emplace_back().emplace_back(nullptr);
  }
  ~FairShareTest() override {
    for (Worker& worker : workers_) {
      for (Batch& batch : worker) shares_.End(&batch.run, now_);
    }
  }

  // Batches of so many turns, from now on.
  Source& Add(const FlowHandle& flow, const std::vector<const int*>& models, int turns,
              int places = 1, int batches = kEndless) {
    Source& source = sources_.emplace_back();
    source.flow = flow;
    source.models = models;
    source.turns = turns;
    source.places = places;
    source.batches = batches;
    source.since = now_;
    return source;
  }
  // What runs is computed to its end.
  void EndAll() {
    for (Source& source : sources_) source.batches = 0;
  }
  void Compute(absl::Duration time, absl::Duration turn = kTurn) {
    for (const absl::Time end = now_ + time; now_ < end;) {
      for (Worker& worker : workers_) {
        if (worker.back().source == nullptr) TakeNext(&worker);
      }
      now_ += turn;
      for (Worker& worker : workers_) {
        if (worker.back().source != nullptr) EndTurn(&worker, turn);
      }
    }
  }
  // In milliseconds, since it was asked for last.
  double TakeSpent(const FlowHandle& flow) {
    absl::Duration spent;
    for (Source& source : sources_) {
      if (source.flow != flow) continue;
      spent += std::exchange(source.spent, absl::ZeroDuration());
    }
    return absl::ToDoubleMilliseconds(spent);
  }

  // The following are for tests that have no workers.
  int First(const std::vector<FairShare::Waiting>& waiting,
            const FairShare::Run* interrupted = nullptr) {
    return shares_.First(waiting, interrupted, /*goes_on=*/nullptr, now_);
  }
  void Begin(FairShare::Run* run, const FlowParts& parts, const int* model) {
    shares_.Begin(run, parts, model, now_);
  }
  // From its beginning to its end.
  void ComputeAlone(const FlowHandle& flow, const int* model, absl::Duration time) {
    FairShare::Run run;
    Begin(&run, {{flow, 1}}, model);
    now_ += time;
    shares_.End(&run, now_);
  }

  FairShare shares_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::deque<Source> sources_;
  std::vector<std::string> ended_;  // the callers of the batches
  const FlowHandle a_ = std::make_shared<Flow>("a");
  const FlowHandle b_ = std::make_shared<Flow>("b");
  const FlowHandle c_ = std::make_shared<Flow>("c");
  const FlowHandle heavy_ = std::make_shared<Flow>("heavy", 3);
  const int m1_ = 0, m2_ = 0, m3_ = 0, m4_ = 0, m5_ = 0, m6_ = 0;

 private:
  struct Batch {
    explicit Batch(const FairShare::Run* outer) : run(outer) {}
    FairShare::Run run;
    Source* source = nullptr;  // null: the worker is idle
    int turns = 0;             // that are left
  };
  // Each interrupts the one before.
  using Worker = std::deque<Batch>;

  Source* Choose(const FairShare::Run* interrupted, const FairShare::Run* goes_on) {
    std::vector<FairShare::Waiting> waiting;
    std::vector<Source*> sources;
    for (Source& source : sources_) {
      if (!source.waits()) continue;
      waiting.push_back({source.flow.get(), source.model(), source.since});
      sources.push_back(&source);
    }
    const int first = shares_.First(waiting, interrupted, goes_on, now_);
    return first < 0 ? nullptr : sources[first];
  }
  void Begin(Batch* batch, Source* source) {
    shares_.Begin(&batch->run, {{source->flow, 100}}, source->model(), now_);
    source->longest_wait = std::max(source->longest_wait, now_ - source->since);
    ++source->running;
    ++source->begun;
    if (source->batches < kEndless) --source->batches;
    batch->source = source;
    batch->turns = source->turns;
  }
  void End(Batch* batch) {
    Source& source = *std::exchange(batch->source, nullptr);
    if (source.running == source.places) source.since = now_;
    --source.running;
    ended_.push_back(source.flow->id());
  }
  void TakeNext(Worker* worker) {
    Batch& batch = worker->front();
    if (Source* const source = Choose(/*interrupted=*/nullptr, &batch.run); source != nullptr) {
      Begin(&batch, source);
    } else {
      shares_.End(&batch.run, now_);
    }
  }
  void EndTurn(Worker* worker, absl::Duration turn) {
    Batch* batch = &worker->back();
    batch->source->spent += turn;
    if (--batch->turns == 0) {
      End(batch);
      if (worker->size() == 1) return TakeNext(worker);
      const FairShare::Run& outer = (*worker)[worker->size() - 2].run;
      if (Source* const source = Choose(&outer, &batch->run); source != nullptr) {
        return Begin(batch, source);
      }
      shares_.End(&batch->run, now_);
      worker->pop_back();
      shares_.GoOn(&worker->back().run, now_);
      return;
    }
    if (worker->size() > kMostNested) return;
    Source* const source = Choose(&batch->run, /*goes_on=*/nullptr);
    if (source == nullptr) return;
    shares_.Interrupt(&batch->run, now_);
    Begin(&worker->emplace_back(&batch->run), source);
  }

  std::vector<Worker> workers_;
};

TEST_F(FairShareTest, ACallerOfManyModelsGetsNoMoreThanOneOfASingleModel) {
  for (const int* model : {&m1_, &m2_, &m3_}) Add(a_, {model}, 20);
  Add(b_, {&m4_}, 2);
  Compute(absl::Seconds(1));
  const double a = TakeSpent(a_);
  const double b = TakeSpent(b_);
  EXPECT_NEAR(b, a, 30);
  EXPECT_NEAR(a + b, 1000, 20);
}

TEST_F(FairShareTest, ModelsInTurnAreNoWayAround) {
  Add(a_, {&m1_, &m2_, &m3_}, 20);
  Add(b_, {&m4_}, 20);
  Compute(absl::Seconds(1));
  EXPECT_NEAR(TakeSpent(b_), TakeSpent(a_), 30);
}

TEST_F(FairShareTest, TimeIsSharedByWeight) {
  Add(a_, {&m1_}, 10);
  Add(heavy_, {&m2_}, 10);
  Compute(absl::Seconds(1));
  EXPECT_NEAR(TakeSpent(heavy_), 750, 15);
  EXPECT_NEAR(TakeSpent(a_), 250, 15);
}

// Whether its batches are long or short.
TEST_F(FairShareTest, ModelsOfOneCallerShareEqually) {
  const Source& slow = Add(a_, {&m1_}, 40);
  const Source& quick = Add(a_, {&m2_}, 3);
  Compute(absl::Milliseconds(400));
  EXPECT_NEAR(absl::ToDoubleMilliseconds(slow.spent), 200, 15);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(quick.spent), 200, 15);
}

TEST_F(FairShareTest, AllModelsMove) {
  for (const int* model : {&m1_, &m2_, &m3_, &m4_, &m5_, &m6_}) Add(a_, {model}, 5);
  Compute(absl::Milliseconds(300));
  for (const Source& source : sources_) {
    // Before each goes each other one, for a batch.
    EXPECT_LE(source.longest_wait, 5 * 5 * kTurn);
    EXPECT_NEAR(absl::ToDoubleMilliseconds(source.spent), 50, 2);
  }
}

// A caller with a single model is served between long batches of one with many, however long.
TEST_F(FairShareTest, NobodyWaitsForLongBatchesOfAnother) {
  for (const int* model : {&m1_, &m2_}) Add(a_, {model}, 500);
  const Source& short_one = Add(b_, {&m4_}, 5);
  Compute(absl::Seconds(2));
  EXPECT_LE(short_one.longest_wait, absl::Milliseconds(4) + kTurn);
  EXPECT_NEAR(TakeSpent(b_), 1000, 20);
}

TEST_F(FairShareTest, AShortBatchDoesNotWaitForALongOne) {
  const Source& slow = Add(a_, {&m1_}, 50, /*places=*/1, /*batches=*/1);
  Compute(9 * kTurn);
  // It is computed at the end of the turn, and is not interrupted in its turn.
  const Source& quick = Add(b_, {&m2_}, 4, /*places=*/1, /*batches=*/1);
  Compute(kTurn);
  EXPECT_EQ(slow.spent, 10 * kTurn);
  Compute(4 * kTurn);
  EXPECT_EQ(quick.spent, 4 * kTurn);
  EXPECT_THAT(ended_, ElementsAre("b"));
  Compute(40 * kTurn);
  EXPECT_THAT(ended_, ElementsAre("b", "a"));
}

// Not even when his share is used up.
TEST_F(FairShareTest, EqualCallersInterruptEachOtherOnlyAfterASlice) {
  Add(a_, {&m1_}, 1000);
  Add(b_, {&m2_}, 1000);
  Compute(absl::Milliseconds(100));
  const FairShare::Waiting other = {b_.get(), &m2_, now_};
  EndAll();
  Compute(absl::Seconds(1));
  FairShare::Run first, second(&first);
  Begin(&first, {{a_, 1}}, &m1_);
  for (absl::Duration passed; passed < absl::Milliseconds(4); passed += kTurn) {
    ASSERT_EQ(First({other}, &first), -1) << passed;
    now_ += kTurn;
  }
  ASSERT_EQ(First({other}, &first), 0);
  shares_.Interrupt(&first, now_);
  Begin(&second, {{b_, 1}}, &m2_);
  const FairShare::Waiting again = {a_.get(), &m3_, now_};
  for (absl::Duration passed; passed < absl::Milliseconds(4); passed += kTurn) {
    ASSERT_EQ(First({again}, &second), -1) << passed;
    now_ += kTurn;
  }
  // He who was interrupted gets a slice as well when he goes on.
  shares_.End(&second, now_);
  shares_.GoOn(&first, now_);
  EXPECT_EQ(First({other}, &first), -1);
  shares_.End(&first, now_);
}

TEST_F(FairShareTest, WhoHasHadEverythingOwesNothingAndWhoHasPausedSavesNothing) {
  Add(a_, {&m1_}, 10);
  Compute(absl::Milliseconds(300));
  EXPECT_NEAR(TakeSpent(a_), 300, 5);
  EndAll();
  Compute(absl::Seconds(1));
  TakeSpent(a_);
  Add(a_, {&m1_}, 10);
  Add(b_, {&m2_}, 10);
  Compute(absl::Milliseconds(200));
  EXPECT_NEAR(TakeSpent(a_), 100, 5);
  EXPECT_NEAR(TakeSpent(b_), 100, 5);
}

// Computes alone for three seconds, in batches of so many turns. Then another caller comes, and
// they share equally: nobody has waited meanwhile, so nothing is owed.
class FairShareOfANewcomerTest : public FairShareTest, public ::testing::WithParamInterface<int> {};

TEST_P(FairShareOfANewcomerTest, WhoHasHadEverythingOwesNothing) {
  Add(a_, {&m1_}, GetParam());
  Compute(absl::Seconds(3));
  TakeSpent(a_);
  Add(b_, {&m2_}, 10);
  Compute(absl::Milliseconds(200));
  EXPECT_NEAR(TakeSpent(a_), 100, 5);
  EXPECT_NEAR(TakeSpent(b_), 100, 5);
}

INSTANTIATE_TEST_SUITE_P(TurnsOfABatch, FairShareOfANewcomerTest, ::testing::Values(10, 100000));

TEST_F(FairShareTest, WhatHasWaitedLongerGoesFirstOfEqualOnes) {
  const absl::Time earlier = now_ - kTurn;
  EXPECT_EQ(First({}), -1);
  EXPECT_EQ(First({{a_.get(), &m1_, now_}, {b_.get(), &m2_, earlier}, {c_.get(), &m3_, now_}}), 1);
  EXPECT_EQ(First({{a_.get(), &m1_, earlier}, {a_.get(), &m2_, now_}}), 0);
  EXPECT_EQ(First({{nullptr, &m1_, now_}}), 0);
}

TEST_F(FairShareTest, ABatchOfSeveralCallersGoesByTheOneWhoHasHadLeast) {
  // All have had as much when they wait at the same time, but for what they compute from then on.
  const FairShare::Waiting third = {c_.get(), &m3_, now_};
  FairShare::Run nobody;
  Begin(&nobody, {{nullptr, 1}}, &m4_);
  shares_.Interrupt(&nobody, now_);  // it waits: the times do not move
  ComputeAlone(a_, &m1_, absl::Milliseconds(30));
  ComputeAlone(c_, &m3_, absl::Milliseconds(20));
  FairShare::Run both;
  Begin(&both, {{a_, 50}, {b_, 50}}, &m1_);
  now_ += absl::Milliseconds(10);
  EXPECT_EQ(First({third}, &both), -1);
  // They have had half of it each.
  now_ += absl::Milliseconds(29);
  EXPECT_EQ(First({third}, &both), -1);
  now_ += absl::Milliseconds(2);
  EXPECT_EQ(First({third}, &both), 0);
  shares_.End(&both, now_);
  shares_.End(&nobody, now_);
}

// On one stack: the batch that is interrupted has to end first, whoever has had less since.
TEST_F(FairShareTest, InterruptedWorkIsNotTakenNested) {
  FairShare::Run first;
  FairShare::Run second(&first);
  Begin(&first, {{a_, 1}}, &m1_);
  now_ += absl::Milliseconds(10);
  EXPECT_EQ(First({{a_.get(), &m1_, now_}}, &first), -1);
  ASSERT_EQ(First({{a_.get(), &m1_, now_}, {b_.get(), &m2_, now_}}, &first), 1);
  shares_.Interrupt(&first, now_);
  Begin(&second, {{b_, 1}}, &m2_);
  now_ += absl::Milliseconds(100);
  EXPECT_EQ(First({{a_.get(), &m1_, now_}}, &second), -1) << "it is interrupted here";
  EXPECT_EQ(First({{b_.get(), &m2_, now_}}, &second), -1) << "it computes";
  EXPECT_EQ(First({{a_.get(), &m2_, now_}}, &second), 0) << "another model of his";
  EXPECT_EQ(First({{c_.get(), &m1_, now_}}, &second), 0) << "another caller of the model";
  EXPECT_EQ(First({{a_.get(), &m1_, now_}}), 0) << "another worker";
  shares_.End(&second, now_);
  shares_.GoOn(&first, now_);
  shares_.End(&first, now_);
}

TEST_F(FairShareTest, AModelAtTheAddressOfOneThatHasGoneStartsAnew) {
  // Two models of a caller, of which one has had more.
  FairShare::Run other;
  Begin(&other, {{a_, 1}}, &m2_);
  shares_.Interrupt(&other, now_);  // it waits: the times do not move
  ComputeAlone(a_, &m1_, absl::Milliseconds(20));
  ComputeAlone(a_, &m3_, absl::Milliseconds(10));
  const std::vector<FairShare::Waiting> waiting = {{a_.get(), &m1_, now_}, {a_.get(), &m3_, now_}};
  EXPECT_EQ(First(waiting), 1);
  {
    FairShare::Run used;
    Begin(&used, {{a_, 1}}, &m1_);
    shares_.Forget(&m1_);  // nothing happens to one that is used
    EXPECT_EQ(First(waiting), 1);
    shares_.End(&used, now_);
  }
  EXPECT_EQ(First(waiting), 1);
  shares_.Forget(&m1_);
  EXPECT_EQ(First(waiting), 0);
  shares_.End(&other, now_);
}

// What the caller has had is forgotten with his last model.
TEST_F(FairShareTest, ACallerOfAModelThatHasGoneStartsAnew) {
  FairShare::Run nobody;
  Begin(&nobody, {{nullptr, 1}}, &m4_);
  shares_.Interrupt(&nobody, now_);
  ComputeAlone(a_, &m1_, absl::Milliseconds(20));
  ComputeAlone(b_, &m2_, absl::Milliseconds(10));
  const std::vector<FairShare::Waiting> waiting = {{a_.get(), &m3_, now_}, {b_.get(), &m2_, now_}};
  EXPECT_EQ(First(waiting), 1);
  shares_.Forget(&m1_);
  EXPECT_EQ(First(waiting), 0);
  shares_.End(&nobody, now_);
}

TEST_F(FairShareTest, ForgetsCallersWhoHaveGone) {
  std::vector<std::weak_ptr<const Flow>> gone;
  for (int i = 0; i < 10000; ++i) {
    const FlowHandle flow = std::make_shared<Flow>("x");
    gone.push_back(flow);
    FairShare::Run run;
    Begin(&run, {{flow, 1}, {a_, 1}, {flow, 1}}, &m1_);
    shares_.End(&run, now_);
  }
  EXPECT_LT(
      std::count_if(gone.begin(), gone.end(), [](const auto& flow) { return !flow.expired(); }),
      5000);
}

class FourWorkersTest : public FairShareTest {
 protected:
  FourWorkersTest() : FairShareTest(4) {}
};

TEST_F(FourWorkersTest, OneCallerGetsEverythingWhereNobodyElseWaits) {
  Add(a_, {&m1_}, 10, /*places=*/4);
  Compute(absl::Milliseconds(100));
  EXPECT_NEAR(TakeSpent(a_), 400, 1e-3);
}

TEST_F(FourWorkersTest, CallersShareTheWorkersByWeight) {
  for (const int* model : {&m1_, &m2_, &m3_}) Add(a_, {model}, 20, /*places=*/4);
  Add(b_, {&m4_}, 2, /*places=*/4);
  Add(heavy_, {&m5_}, 7, /*places=*/4);
  Compute(absl::Seconds(1));
  EXPECT_NEAR(TakeSpent(a_), 800, 40);
  EXPECT_NEAR(TakeSpent(b_), 800, 40);
  EXPECT_NEAR(TakeSpent(heavy_), 2400, 40);
}

TEST_F(FourWorkersTest, WhoCannotUseHisShareHoldsNobodyBack) {
  Add(a_, {&m1_}, 10);
  Add(b_, {&m2_}, 10, /*places=*/4);
  Compute(absl::Seconds(30), absl::Milliseconds(100));
  EXPECT_NEAR(TakeSpent(a_), 30000, 300);
  EXPECT_NEAR(TakeSpent(b_), 90000, 300);
  Add(c_, {&m3_}, 10, /*places=*/4);
  Compute(absl::Milliseconds(400), absl::Milliseconds(1));
  EXPECT_NEAR(TakeSpent(a_), 400, 20);
  EXPECT_NEAR(TakeSpent(b_), 600, 60);
  EXPECT_NEAR(TakeSpent(c_), 600, 60);
}

TEST_F(FourWorkersTest, WhatACallerCouldNotUseIsNotSavedUp) {
  Add(a_, {&m1_}, 10);
  Add(b_, {&m2_}, 10, /*places=*/4);
  Compute(absl::Seconds(30), absl::Milliseconds(100));
  TakeSpent(a_);
  TakeSpent(b_);
  Add(a_, {&m3_}, 10, /*places=*/3);
  Compute(absl::Milliseconds(400), absl::Milliseconds(1));
  EXPECT_NEAR(TakeSpent(a_), 800, 60);
  EXPECT_NEAR(TakeSpent(b_), 800, 60);
}

}  // namespace
}  // namespace sru::server::batching
