// Tests what the benchmarks measure with.
#include "kernels/bench/measure.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "kernels/bench/memory_reading.h"

namespace sru::kernels {
namespace {

TEST(MeasureTest, Median) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({5, 1, 3}), 3);
  EXPECT_EQ(Median({4, 1, 3, 2}), 3);
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

}  // namespace
}  // namespace sru::kernels
