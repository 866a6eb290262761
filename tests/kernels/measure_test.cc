// Tests what the benchmarks measure with.
#include "kernels/bench/measure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "kernels/bench/memory_reading.h"

namespace sru::kernels {
namespace {

using ::testing::HasSubstr;

TEST(MeasureTest, Median) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({5, 1, 3}), 3);
  EXPECT_EQ(Median({4, 1, 3, 2}), 3);
}

TEST(MeasureTest, BodiesTakeTurns) {
  std::string order;
  Rounds rounds;
  rounds.most = 5;
  rounds.seconds = 1000;
  int run = 0;
  const std::vector<double> medians =
      AlternatingMedians(rounds, {[&] { order += 'a'; }, [&] { order += 'b'; }}, &run);
  EXPECT_EQ(run, 5);
  EXPECT_EQ(order, "abababababababab");  // three rounds of warm-up
  ASSERT_EQ(medians.size(), 2u);
  for (double us : medians) EXPECT_GE(us, 0);
}

TEST(MemoryReadingTest, EveryWayReadsEachWordOnce) {
  for (const size_t bytes : {size_t{0}, size_t{64}, size_t{64 * 15 + 8}, size_t{64 * 1003}}) {
    const MemoryReading reading(bytes);
    EXPECT_GE(reading.words() * sizeof(uint64_t), bytes);
    const uint64_t expected = reading.words() * (reading.words() - 1) / 2;
    for (int number = 0; number < MemoryReading::num_ways(); ++number) {
      EXPECT_EQ(reading.Run(number), expected) << bytes << " bytes, way " << number;
    }
    EXPECT_EQ(reading.Run(), expected);
  }
}

TEST(MeasureTest, OutOfTimeTheLeastNumberOfRoundsIsRun) {
  int calls = 0;
  Rounds rounds;
  rounds.most = 100;
  rounds.seconds = 0;
  int run = 0;
  AlternatingMedians(rounds, {[&] { ++calls; }}, &run);
  EXPECT_EQ(run, 3);
  EXPECT_EQ(calls, 3);
}

TEST(MeasureTest, PinsTheCallingThread) {
  std::thread([] {
    int pinned = -1;
    ASSERT_TRUE(PinToCore(-1, &pinned).ok());
    cpu_set_t set;
    ASSERT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    EXPECT_EQ(CPU_COUNT(&set), 1);
    EXPECT_TRUE(CPU_ISSET(pinned, &set));
    const Status status = PinToCore(CPU_SETSIZE);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("core"));
  }).join();
}

TEST(MeasureTest, PeakMemoryIsResetAndGrows) {
  if (!ResetPeakMemory()) GTEST_SKIP() << "this system does not reset the peak of memory";
  const int64_t before = PeakMemoryBytes();
  EXPECT_GT(before, 0);
  constexpr int64_t kBytes = 64 << 20;
  {
    std::vector<char> memory(kBytes);
    // volatile: compilers leave out memory that nothing reads.
    volatile char* bytes = memory.data();
    for (int64_t i = 0; i < kBytes; i += 4096) bytes[i] = 1;
  }
  EXPECT_GT(PeakMemoryBytes(), before + kBytes / 2);
  ASSERT_TRUE(ResetPeakMemory());
  EXPECT_LT(PeakMemoryBytes(), before + kBytes / 2);
}

}  // namespace
}  // namespace sru::kernels
