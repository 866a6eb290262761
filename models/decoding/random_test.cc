#include "models/decoding/random.h"

#include <cstdint>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::models {
namespace {

using ::testing::ElementsAre;

// The known answers of the authors' own library (Random123, kat_vectors).
TEST(RandomTest, GivesThePublishedAnswers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(
      Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
      ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(
      Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

// A seed fixes the texts of a released server for good.
TEST(RandomTest, IsTheSameForEver) {
  EXPECT_EQ(RandomAt(0, 0, 0), 0xe169c58d6627e8d5u);
  EXPECT_EQ(RandomAt(0x299f31d0a4093822u, 0, 0),
            static_cast<uint64_t>(Philox4x32({0, 0, 0, 0}, {0xa4093822, 0x299f31d0})[1]) << 32 |
                Philox4x32({0, 0, 0, 0}, {0xa4093822, 0x299f31d0})[0]);
}

TEST(RandomTest, EveryPartOfThePlaceCounts) {
  std::set<uint64_t> seen;
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 32, ~uint64_t{0}}) {
    for (const int sample : {0, 1, 63}) {
      for (const int64_t position : {int64_t{0}, int64_t{1}, int64_t{1} << 32, int64_t{1} << 62}) {
        seen.insert(RandomAt(seed, sample, position));
      }
    }
  }
  EXPECT_EQ(seen.size(), 4u * 3u * 4u);
}

// Chi-square over 256 classes; 255 degrees of freedom have a mean of 255 and a standard deviation
// of 22.6.
double ChiSquare(const std::vector<int>& counts, int total) {
  const double expected = static_cast<double>(total) / static_cast<double>(counts.size());
  double sum = 0;
  for (const int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(RandomTest, IsUniformAlongASequenceAndAcrossSamplesAndSeeds) {
  constexpr int kDraws = 1 << 16;
  constexpr double kMost = 255 + 5 * 22.6;
  for (const int shift : {0, 24, 32, 56}) {
    std::vector<int> by_position(256), by_sample(256), by_seed(256), neighbors(256);
    for (int i = 0; i < kDraws; ++i) {
      ++by_position[RandomAt(1, 0, i) >> shift & 255];
      ++by_sample[RandomAt(1, i, 0) >> shift & 255];
      ++by_seed[RandomAt(static_cast<uint64_t>(i), 0, 0) >> shift & 255];
      // Neighbors in every direction are independent if their exclusive or is uniform.
      ++neighbors[(RandomAt(1, 0, i) ^ RandomAt(1, 0, i + 1) ^ RandomAt(1, 1, i) ^
                   RandomAt(2, 0, i)) >>
                      shift &
                  255];
    }
    EXPECT_LT(ChiSquare(by_position, kDraws), kMost) << "bits from " << shift;
    EXPECT_LT(ChiSquare(by_sample, kDraws), kMost) << "bits from " << shift;
    EXPECT_LT(ChiSquare(by_seed, kDraws), kMost) << "bits from " << shift;
    EXPECT_LT(ChiSquare(neighbors, kDraws), kMost) << "bits from " << shift;
  }
}

}  // namespace
}  // namespace sru::models
