// Every item runs once, slots are exclusive, and busy cores are left alone.
#include "kernels/cpu/base/parallel_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "kernels/cpu/base/library_calls.h"
#include "kernels/turn.h"

namespace sru::kernels::cpu {
namespace {

TEST(ParallelRunnerTest, EachItemOnceAndSlotsAreExclusive) {
  ParallelRunner runner(4, 4);
  for (int round = 0; round < 200; ++round) {
    const ParallelRunner::Batch running(runner);
    std::vector<std::atomic<int>> runs(37);
    std::vector<std::atomic<int>> in_slot(4);
    runner.ForEach(37, [&](int item, int slot) {
      EXPECT_EQ(in_slot[slot]++, 0);
      ++runs[item];
      --in_slot[slot];
    });
    for (const auto& count : runs) EXPECT_EQ(count, 1);
  }
}

// The message goes to the operator, who can raise a limit.
TEST(CatchErrorsTest, SaysWhatAThreadIsMissing) {
  const Status status = CatchErrors("starting threads", []() -> Status {
    throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  });
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("starting threads: a thread cannot be started"),
            std::string::npos);
  EXPECT_NE(status.message().find("pids.max"), std::string::npos);
  const Status other = CatchErrors("starting threads", []() -> Status {
    throw std::system_error(std::make_error_code(std::errc::permission_denied));
  });
  EXPECT_EQ(other.code(), StatusCode::kInternal);
}

// There is scratch memory for as many threads as there are items.
TEST(ParallelRunnerTest, SlotsAreBelowTheNumberOfItems) {
  ParallelRunner runner(6, 6);
  const ParallelRunner::Batch running(runner);
  int highest = 0;
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::atomic<int>> slot_of(2);
    runner.ForEach(2, [&](int item, int slot) { slot_of[item] = slot; });
    highest = std::max({highest, slot_of[0].load(), slot_of[1].load()});
  }
  EXPECT_LE(highest, 1);
}

TEST(ParallelRunnerTest, SeveralBatchesAtATime) {
  ParallelRunner runner(3, 6);
  std::atomic<int> total{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        const ParallelRunner::Batch running(runner);
        runner.ForEach(11, [&](int, int) { ++total; });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(total, 3 * 200 * 11);
}

TEST(ParallelRunnerTest, BusyCoresAreLeftAlone) {
  ParallelRunner runner(4, 2);
  const ParallelRunner::Batch one(runner);
  const ParallelRunner::Batch other(runner);
  const std::thread::id caller = std::this_thread::get_id();
  runner.ForEach(50, [&](int, int slot) {
    EXPECT_EQ(slot, 0);
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
}

// A worker that looks for its next batch is not busy here, but has its core.
TEST(ParallelRunnerTest, CoresOfOtherWorkersAreLeftAlone) {
  class End final : public TurnEnd {
   public:
    void OnTurnEnd() override {}
    bool HasIdleCore() const override { return false; }
  } end;
  const TurnEnd::Scope turns(&end);
  ParallelRunner runner(4, 4);
  const ParallelRunner::Batch running(runner);
  for (int round = 0; round < 200; ++round) {
    runner.ForEach(50, [&](int, int slot) { EXPECT_EQ(slot, 0); });
  }
}

TEST(ParallelRunnerTest, PassesOnWhatABodyThrows) {
  ParallelRunner runner(3, 3);
  const ParallelRunner::Batch running(runner);
  EXPECT_THROW(runner.ForEach(20,
                              [](int item, int) {
                                if (item == 7) throw std::runtime_error("seven");
                              }),
               std::runtime_error);
  std::atomic<int> total{0};
  runner.ForEach(20, [&](int, int) { ++total; });
  EXPECT_EQ(total, 20);
}

}  // namespace
}  // namespace sru::kernels::cpu
