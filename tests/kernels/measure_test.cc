// Tests what the benchmarks measure with.
#include "kernels/bench/measure.h"

#include <gtest/gtest.h>

namespace sru::kernels {
namespace {

TEST(MeasureTest, Median) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({5, 1, 3}), 3);
  EXPECT_EQ(Median({4, 1, 3, 2}), 3);
}

}  // namespace
}  // namespace sru::kernels
