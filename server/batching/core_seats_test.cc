#include "server/batching/core_seats.h"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/batching/queue/fair_order.h"
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
  // Threads begin while this test has the seat, in their order, and compute once it has given it away.
  void Begin(std::function<void()> compute) {
    const int waiting = seats_.waiting();
    threads_.emplace_back(std::move(compute));
    while (seats_.waiting() == waiting) std::this_thread::yield();
  }
  void Hold() {
    held_ = std::make_unique<CoreSeats::Seat>(&seats_, &seats_);
    held_->Take({{nobody_, Priority::kNormal, 1}});
  }
  void Release() { held_.reset(); }
  void RunAll() {
    Release();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  // A batch of so many turns. `flow`: whose.
  void Compute(CoreSeats::Seat* seat, const FlowHandle& flow, int turns,
               Priority priority = Priority::kNormal) {
    seat->Take({{flow, priority, 100}});
    for (int i = 0; i < turns; ++i) {
      clock_.Advance(kTurn);
      spent_[flow] += kTurn;
      seat->OnTurnEnd();
    }
    ended_.push_back(flow->id());
  }
  std::function<void()> Batch(const void* model, const FlowHandle& flow, int turns,
                              Priority priority = Priority::kNormal) {
    return [=] {
      CoreSeats::Seat seat(&seats_, model);
      Compute(&seat, flow, turns, priority);
    };
  }
  // Batches, until so much time has passed in all.
  std::function<void()> Flood(const void* model, const FlowHandle& flow, int turns,
                              absl::Duration until, Priority priority = Priority::kNormal) {
    const absl::Time end = clock_.Now() + until;
    return [=] {
      CoreSeats::Seat seat(&seats_, model);
      while (clock_.Now() < end) Compute(&seat, flow, turns, priority);
    };
  }
  double Spent(const FlowHandle& flow) { return absl::ToDoubleMilliseconds(spent_[flow]); }

  FakeClock clock_;
  CoreSeats seats_{1, absl::Milliseconds(500), &clock_};
  std::vector<std::thread> threads_;
  // Used by the one that computes.
  std::map<FlowHandle, absl::Duration> spent_;
  std::vector<std::string> ended_;
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
  for (const int* model : {&m1_, &m2_, &m3_}) Begin(Flood(model, a_, 20, absl::Seconds(1)));
  Begin(Flood(&m4_, b_, 2, absl::Seconds(1)));
  RunAll();
  EXPECT_NEAR(Spent(b_), Spent(a_), 20);
  EXPECT_NEAR(Spent(a_) + Spent(b_), 1000, 20);
}

TEST_F(CoreSeatsTest, TimeIsSharedByWeight) {
  Begin(Flood(&m1_, a_, 10, absl::Seconds(1)));
  Begin(Flood(&m2_, c_, 10, absl::Seconds(1)));
  RunAll();
  EXPECT_NEAR(Spent(c_), 750, 15);
  EXPECT_NEAR(Spent(a_), 250, 15);
}

TEST_F(CoreSeatsTest, ModelsOfOneCallerShareEqually) {
  std::map<const int*, absl::Duration> spent;
  const absl::Time end = clock_.Now() + absl::Milliseconds(300);
  for (const int* model : {&m1_, &m2_}) {
    Begin([&, model] {
      CoreSeats::Seat seat(&seats_, model);
      while (clock_.Now() < end) {
        const int turns = model == &m1_ ? 40 : 3;
        Compute(&seat, a_, turns);
        spent[model] += turns * kTurn;
      }
    });
  }
  RunAll();
  EXPECT_NEAR(absl::ToDoubleMilliseconds(spent[&m1_]), 150, 15);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(spent[&m2_]), 150, 15);
}

// What comes during a long batch goes at the end of the turn, and gives no way before the other has missed a slice.
TEST_F(CoreSeatsTest, AShortBatchDoesNotWaitForALongOne) {
  std::thread late;
  Begin([&] {
    CoreSeats::Seat seat(&seats_, &m1_);
    seat.Take({{a_, Priority::kNormal, 100}});
    for (int i = 0; i < 50; ++i) {
      if (i == 9) {
        late = std::thread(Batch(&m2_, b_, 4));
        while (seats_.waiting() == 0) std::this_thread::yield();
      }
      const absl::Time begun = clock_.Now();
      clock_.Advance(kTurn);
      seat.OnTurnEnd();
      EXPECT_EQ(clock_.Now() - begun, i == 9 ? 5 * kTurn : kTurn);
    }
    ended_.emplace_back("a");
  });
  RunAll();
  late.join();
  EXPECT_THAT(ended_, ElementsAre("b", "a"));
}

TEST_F(CoreSeatsTest, WhoHasHadEverythingOwesNothingAndWhoHasPausedSavesNothing) {
  Begin(Flood(&m1_, a_, 10, absl::Milliseconds(300)));
  RunAll();
  EXPECT_NEAR(Spent(a_), 300, 5);
  Hold();
  Begin(Flood(&m1_, a_, 10, absl::Milliseconds(200)));
  Begin(Flood(&m2_, b_, 10, absl::Milliseconds(200)));
  RunAll();
  EXPECT_NEAR(Spent(a_), 300 + 100, 5);
  EXPECT_NEAR(Spent(b_), 100, 5);
}

TEST_F(CoreSeatsTest, ALowBatchUnderAFloodOfAHigherPriorityMovesAtLast) {
  const absl::Time start = clock_.Now();
  absl::Time ended;
  Begin(Flood(&m2_, b_, 10, absl::Seconds(2), Priority::kHigh));
  Begin([&] {
    CoreSeats::Seat seat(&seats_, &m1_);
    Compute(&seat, a_, 20, Priority::kLow);
    ended = clock_.Now();
  });
  RunAll();
  // Three ageing intervals; once it has begun it goes on to its end.
  EXPECT_NEAR(absl::ToDoubleMilliseconds(ended - start), 1500 + 4, 3);
}

// The thread of an event loop computes at once or not at all.
TEST_F(CoreSeatsTest, AThreadThatMustNotWaitComputesBesideTheOthers) {
  EXPECT_TRUE(seats_.MayGo(&m1_));
  {
    CoreSeats::Seat seat(&seats_, &m1_);
    seat.Take({{a_, Priority::kNormal, 1}}, /*waits=*/false);
    EXPECT_FALSE(seats_.MayGo(&m1_)) << "a batch of it computes";
    clock_.Advance(kTurn);
    Begin(Batch(&m2_, b_, 1));
    EXPECT_FALSE(seats_.MayGo(&m2_)) << "one waits";
    Release();
    EXPECT_EQ(seats_.waiting(), 1);  // one seat, which the loop has now
  }
  RunAll();
  EXPECT_THAT(ended_, ElementsAre("b"));
  Hold();
  Begin(Flood(&m2_, b_, 10, absl::Milliseconds(10)));
  EXPECT_TRUE(seats_.MayGo(&m3_));
  {
    CoreSeats::Seat seat(&seats_, &m3_);
    seat.Take({{a_, Priority::kNormal, 1}}, /*waits=*/false);
    clock_.Advance(kTurn);
  }
  EXPECT_FALSE(seats_.MayGo(&m3_)) << "it has had more than the others";
  RunAll();
  EXPECT_TRUE(seats_.MayGo(&m3_));
}

TEST_F(CoreSeatsTest, ForgetsCallersWhoHaveGone) {
  Release();
  std::vector<std::weak_ptr<const Flow>> gone;
  for (int i = 0; i < 10000; ++i) {
    const FlowHandle flow = std::make_shared<Flow>("x");
    gone.push_back(flow);
    CoreSeats::Seat seat(&seats_, &m1_);
    seat.Take({{flow, Priority::kNormal, 1}});
  }
  EXPECT_LT(
      std::count_if(gone.begin(), gone.end(), [](const auto& flow) { return !flow.expired(); }),
      5000);
}

TEST_F(CoreSeatsTest, APriorityGoesFirst) {
  Begin(Batch(&m1_, a_, 1, Priority::kLow));
  Begin(Batch(&m2_, b_, 1, Priority::kNormal));
  Begin(Batch(&m3_, c_, 1, Priority::kHigh));
  RunAll();
  EXPECT_THAT(ended_, ElementsAre("c", "b", "a"));
}

}  // namespace
}  // namespace sru::server::batching
