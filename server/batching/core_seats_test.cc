#include "server/batching/core_seats.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/queue/flow.h"
#include "tests/testing/fake_clock.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;

constexpr absl::Duration kTurn = absl::Microseconds(200);

// There is one seat, so that one thread at a time computes, and the clock moves only while it does.
class CoreSeatsTest : public ::testing::Test {
 protected:
  CoreSeatsTest() { Hold(); }
  // Threads begin while this test has the seat, in their order, and compute once it has given it
  // away.
  void Begin(std::function<void()> compute) {
    const int waiting = seats_.waiting();
    threads_.emplace_back(std::move(compute));
    while (seats_.waiting() == waiting) std::this_thread::yield();
  }
  void Hold() {
    held_ = std::make_unique<CoreSeats::Seat>(&seats_, &seats_);
    held_->Take({{nobody_, 1}});
  }
  void Release() { held_.reset(); }
  void RunAll() {
    Release();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // A batch of so many turns. `flow`: whose.
  void Compute(CoreSeats::Seat* seat, const FlowHandle& flow, int turns) {
    const absl::Time come = clock_.Now();
    seat->Take({{flow, 100}});
    AwaitSeat(seat);
    longest_wait_ = std::max(longest_wait_, clock_.Now() - come);
    for (int i = 0; i < turns; ++i) {
      // Every thread that floods waits again before the clock moves on.
      while (seats_.waiting() + 1 < floods_) std::this_thread::yield();
      clock_.Advance(kTurn);
      spent_[flow] += kTurn;
      seat->OnTurnEnd();
      AwaitSeat(seat);
    }
    ended_.push_back(flow->id());
  }
  // Without the turn that a thread computes while the one that has its seat now wakes up.
  static void AwaitSeat(CoreSeats::Seat* seat) { seat->OnTurnEnd(); }
  std::function<void()> Batch(const void* model, const FlowHandle& flow, int turns) {
    return [=] {
      CoreSeats::Seat seat(&seats_, model);
      Compute(&seat, flow, turns);
    };
  }
  // Batches, until so much time has passed in all; of several models one after the other.
  void BeginFlood(const std::vector<const void*>& models, const FlowHandle& flow, int turns,
                  absl::Duration until) {
    ++floods_;
    Begin([=, end = clock_.Now() + until] {
      std::vector<std::unique_ptr<CoreSeats::Seat>> seats;
      for (const void* model : models) {
        seats.push_back(std::make_unique<CoreSeats::Seat>(&seats_, model));
      }
      for (size_t i = 0; clock_.Now() < end; ++i) {
        CoreSeats::Seat& seat = *seats[i % seats.size()];
        Compute(&seat, flow, turns);
        if (models.size() > 1) seat.Release();
      }
      --floods_;
    });
  }
  double Spent(const FlowHandle& flow) { return absl::ToDoubleMilliseconds(spent_[flow]); }

  FakeClock clock_;
  CoreSeats seats_{1, &clock_};
  std::vector<std::thread> threads_;
  std::atomic<int> floods_{0};
  // Used by the one that computes.
  std::map<FlowHandle, absl::Duration> spent_;
  std::vector<std::string> ended_;
  absl::Duration longest_wait_;
  const FlowHandle a_ = std::make_shared<Flow>("a");
  const FlowHandle b_ = std::make_shared<Flow>("b");
  const FlowHandle c_ = std::make_shared<Flow>("c", 3);
  // Models.
  const int m1_ = 0, m2_ = 0, m3_ = 0, m4_ = 0;

 private:
  const FlowHandle nobody_ = std::make_shared<Flow>("nobody");
  std::unique_ptr<CoreSeats::Seat> held_;
};

TEST_F(CoreSeatsTest, ACallerOfManyModelsGetsNoMoreThanOneOfASingleModel) {
  for (const int* model : {&m1_, &m2_, &m3_}) BeginFlood({model}, a_, 20, absl::Seconds(1));
  BeginFlood({&m4_}, b_, 2, absl::Seconds(1));
  RunAll();
  EXPECT_NEAR(Spent(b_), Spent(a_), 30);
  EXPECT_NEAR(Spent(a_) + Spent(b_), 1000, 20);
}

TEST_F(CoreSeatsTest, ModelsInTurnAreNoWayAround) {
  BeginFlood({&m1_, &m2_, &m3_}, a_, 20, absl::Seconds(1));
  BeginFlood({&m4_}, b_, 20, absl::Seconds(1));
  RunAll();
  EXPECT_NEAR(Spent(b_), Spent(a_), 30);
}

TEST_F(CoreSeatsTest, TimeIsSharedByWeight) {
  BeginFlood({&m1_}, a_, 10, absl::Seconds(1));
  BeginFlood({&m2_}, c_, 10, absl::Seconds(1));
  RunAll();
  EXPECT_NEAR(Spent(c_), 750, 15);
  EXPECT_NEAR(Spent(a_), 250, 15);
}

TEST_F(CoreSeatsTest, ModelsOfOneCallerShareEqually) {
  // They are told apart by their batches.
  std::map<int, absl::Duration> spent;
  const absl::Time end = clock_.Now() + absl::Milliseconds(400);
  floods_ = 2;
  for (const int turns : {40, 3}) {
    Begin([&, turns] {
      CoreSeats::Seat seat(&seats_, turns == 40 ? &m1_ : &m2_);
      while (clock_.Now() < end) {
        Compute(&seat, a_, turns);
        spent[turns] += turns * kTurn;
      }
      --floods_;
    });
  }
  RunAll();
  EXPECT_NEAR(absl::ToDoubleMilliseconds(spent[40]), 200, 15);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(spent[3]), 200, 15);
}

// Each has a batch, and all of them move.
TEST_F(CoreSeatsTest, WorkersOfOneModelTakeTurns) {
  for (int worker = 0; worker < 3; ++worker) BeginFlood({&m1_}, a_, 5, absl::Milliseconds(300));
  for (int worker = 0; worker < 3; ++worker) BeginFlood({&m2_}, a_, 5, absl::Milliseconds(300));
  RunAll();
  // Before each goes each other one, for a slice and the rest of a batch.
  EXPECT_LE(longest_wait_, 5 * absl::Milliseconds(4 + 1));
}

// A batch that comes during a long one is computed at the end of the turn, and keeps the seat for a
// slice.
TEST_F(CoreSeatsTest, AShortBatchDoesNotWaitForALongOne) {
  std::thread late;
  Begin([&] {
    CoreSeats::Seat seat(&seats_, &m1_);
    seat.Take({{a_, 100}});
    for (int i = 0; i < 50; ++i) {
      if (i == 9) {
        late = std::thread(Batch(&m2_, b_, 4));
        while (seats_.waiting() == 0) std::this_thread::yield();
      }
      const absl::Time begun = clock_.Now();
      clock_.Advance(kTurn);
      seat.OnTurnEnd();
      AwaitSeat(&seat);
      EXPECT_EQ(clock_.Now() - begun, i == 9 ? 5 * kTurn : kTurn);
    }
    ended_.emplace_back("a");
  });
  RunAll();
  late.join();
  EXPECT_THAT(ended_, ElementsAre("b", "a"));
}

TEST_F(CoreSeatsTest, WhoHasHadEverythingOwesNothingAndWhoHasPausedSavesNothing) {
  BeginFlood({&m1_}, a_, 10, absl::Milliseconds(300));
  RunAll();
  EXPECT_NEAR(Spent(a_), 300, 5);
  Hold();
  BeginFlood({&m1_}, a_, 10, absl::Milliseconds(200));
  BeginFlood({&m2_}, b_, 10, absl::Milliseconds(200));
  RunAll();
  EXPECT_NEAR(Spent(a_), 300 + 100, 5);
  EXPECT_NEAR(Spent(b_), 100, 5);
}

// The thread of an event loop computes at once or not at all.
TEST_F(CoreSeatsTest, AThreadThatMustNotWaitComputesBesideTheOthers) {
  EXPECT_TRUE(seats_.MayGo(&m1_));
  {
    CoreSeats::Seat seat(&seats_, &m1_);
    seat.Take({{a_, 1}}, /*waits=*/false);
    EXPECT_FALSE(seats_.MayGo(&m1_)) << "a batch of it computes";
    EXPECT_TRUE(seats_.MayGoBeyond(b_.get()));
    clock_.Advance(kTurn);
    Begin(Batch(&m2_, b_, 1));
    EXPECT_FALSE(seats_.MayGo(&m2_)) << "one waits";
    Release();
    EXPECT_EQ(seats_.waiting(), 1);  // one seat, which the loop has now
  }
  RunAll();
  EXPECT_THAT(ended_, ElementsAre("b"));
  Hold();
  BeginFlood({&m2_}, b_, 10, absl::Milliseconds(10));
  EXPECT_TRUE(seats_.MayGo(&m3_));
  {
    CoreSeats::Seat seat(&seats_, &m3_);
    seat.Take({{a_, 1}}, /*waits=*/false);
    clock_.Advance(kTurn);
  }
  EXPECT_FALSE(seats_.MayGo(&m3_)) << "its caller has had more than the others";
  EXPECT_FALSE(seats_.MayGoBeyond(a_.get()));
  EXPECT_TRUE(seats_.MayGoBeyond(std::make_shared<Flow>("c").get())) << "he has had nothing";
  RunAll();
  EXPECT_TRUE(seats_.MayGo(&m3_));
  EXPECT_TRUE(seats_.MayGoBeyond(a_.get()));
}

TEST_F(CoreSeatsTest, AModelAtTheAddressOfOneThatHasGoneStartsAnew) {
  BeginFlood({&m2_}, b_, 10, absl::Milliseconds(10));
  {
    CoreSeats::Seat seat(&seats_, &m3_);
    seat.Take({{a_, 1}}, /*waits=*/false);
    clock_.Advance(kTurn);
    seats_.Forget(&m3_);  // nothing happens to one that is used
    EXPECT_FALSE(seats_.MayGo(&m3_));
  }
  EXPECT_FALSE(seats_.MayGo(&m3_)) << "its caller has had more than the others";
  seats_.Forget(&m3_);
  EXPECT_TRUE(seats_.MayGo(&m3_));
  RunAll();
}

TEST(CoreSeatsIdleTest, ACoreIsIdleWhileASeatIsFree) {
  FakeClock clock;
  CoreSeats seats(2, &clock);
  CoreSeats::Seat one(&seats, &clock);
  one.Take({{nullptr, 1}});
  EXPECT_TRUE(one.HasIdleCore());
  {
    CoreSeats::Seat other(&seats, &clock);
    other.Take({{nullptr, 1}});
    EXPECT_FALSE(one.HasIdleCore());
  }
  EXPECT_TRUE(one.HasIdleCore());
}

TEST_F(CoreSeatsTest, ForgetsCallersWhoHaveGone) {
  Release();
  std::vector<std::weak_ptr<const Flow>> gone;
  for (int i = 0; i < 10000; ++i) {
    const FlowHandle flow = std::make_shared<Flow>("x");
    gone.push_back(flow);
    CoreSeats::Seat seat(&seats_, &m1_);
    seat.Take({{flow, 1}, {a_, 1}, {flow, 1}});
  }
  EXPECT_LT(
      std::count_if(gone.begin(), gone.end(), [](const auto& flow) { return !flow.expired(); }),
      5000);
}

// Four seats. The clock moves when the threads that have them all wait for it.
class FourSeatsTest : public ::testing::Test {
 protected:
  ~FourSeatsTest() override {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }
  // Workers of a model that have work all the time, in batches of ten turns.
  void BeginFlood(int workers, const int* model, const FlowHandle& flow) {
    for (int i = 0; i < workers; ++i) {
      const int waiting = seats_.waiting();
      const int ready = ready_;
      threads_.emplace_back([=] { Flood(model, flow); });
      while (seats_.waiting() == waiting && ready_ == ready) std::this_thread::yield();
    }
  }
  void Compute(absl::Duration turn, int turns) {
    for (int i = 0; i <= turns; ++i) {
      while (ready_ < 4) std::this_thread::yield();
      if (i == turns) return;
      turn_ = turn;
      clock_.Advance(turn);
      ready_ = 0;
      ++tick_;
    }
  }
  double TakeSpent(const FlowHandle& flow) {
    const MutexLock lock(&mutex_);
    return absl::ToDoubleMilliseconds(std::exchange(spent_[flow], absl::ZeroDuration()));
  }

  FakeClock clock_;
  CoreSeats seats_{4, &clock_};
  const FlowHandle a_ = std::make_shared<Flow>("a");
  const FlowHandle b_ = std::make_shared<Flow>("b");
  const FlowHandle c_ = std::make_shared<Flow>("c");
  const int m1_ = 0, m2_ = 0, m3_ = 0;

 private:
  void Flood(const int* model, const FlowHandle& flow) {
    CoreSeats::Seat seat(&seats_, model);
    while (!stop_) {
      seat.Take({{flow, 100}});
      while (!seat.is_seated()) seat.OnTurnEnd();
      for (int i = 0; i < 10 && !stop_; ++i) {
        const int tick = tick_;
        ++ready_;
        while (tick_ == tick && !stop_) std::this_thread::yield();
        {
          const MutexLock lock(&mutex_);
          spent_[flow] += turn_;
        }
        // Without the turn that it would compute while the one that has its seat now wakes up.
        // Meanwhile another thread may come to wait, to which it gives its seat at the next end of
        // a turn: two calls are not enough.
        do {
          seat.OnTurnEnd();
        } while (!seat.is_seated());
      }
    }
  }

  Mutex mutex_;
  std::map<FlowHandle, absl::Duration> spent_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int> tick_{0};
  std::atomic<int> ready_{0};  // threads that have a seat and wait for the clock
  std::atomic<bool> stop_{false};
  absl::Duration turn_;  // written while all wait
  std::vector<std::thread> threads_;
};

TEST_F(FourSeatsTest, WhoCannotUseHisShareHoldsNobodyBack) {
  BeginFlood(1, &m1_, a_);
  BeginFlood(4, &m2_, b_);
  Compute(absl::Milliseconds(100), 300);
  EXPECT_NEAR(TakeSpent(a_), 30000, 300);
  EXPECT_NEAR(TakeSpent(b_), 90000, 300);
  BeginFlood(4, &m3_, c_);
  Compute(absl::Milliseconds(1), 400);
  EXPECT_NEAR(TakeSpent(a_), 400, 20);
  EXPECT_NEAR(TakeSpent(b_), 600, 60);
  EXPECT_NEAR(TakeSpent(c_), 600, 60);
}

TEST_F(FourSeatsTest, WhatACallerCouldNotUseIsNotSavedUp) {
  BeginFlood(1, &m1_, a_);
  BeginFlood(4, &m2_, b_);
  Compute(absl::Milliseconds(100), 300);
  TakeSpent(a_);
  TakeSpent(b_);
  BeginFlood(3, &m3_, a_);
  Compute(absl::Milliseconds(1), 400);
  EXPECT_NEAR(TakeSpent(a_), 800, 60);
  EXPECT_NEAR(TakeSpent(b_), 800, 60);
}

}  // namespace
}  // namespace sru::server::batching
