#include "server/base/late_wakes.h"

#include <array>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Letter : LateWakes::Link {
  char name = 0;
};

class Recorder final : public LateWakes::Taker {
 public:
  // The newest letter of each chain first.
  std::vector<std::string> chains;

 private:
  void Take(LateWakes::Link* newest, LateWakes::Link* oldest) override {
    std::string chain;
    for (LateWakes::Link* link = newest;; link = link->older) {
      chain += static_cast<Letter*>(link)->name;
      if (link == oldest) break;
    }
    chains.push_back(chain);
  }
};

TEST(LateWakesTest, EachTakerGetsAllAtOnceAtTheEnd) {
  std::array<Letter, 5> letters;
  for (size_t i = 0; i < letters.size(); ++i) letters[i].name = static_cast<char>('a' + i);
  Recorder one;
  Recorder other;
  {
    const LateWakes late;
    LateWakes::HandOver(&one, &letters[0]);
    {
      const LateWakes within;
      LateWakes::HandOver(&other, &letters[1]);
    }
    LateWakes::HandOver(&one, &letters[2]);
    LateWakes::HandOver(&one, &letters[3]);
    EXPECT_THAT(one.chains, IsEmpty());
    EXPECT_THAT(other.chains, IsEmpty());
  }
  EXPECT_THAT(one.chains, ElementsAre("dca"));
  EXPECT_THAT(other.chains, ElementsAre("b"));
  LateWakes::HandOver(&one, &letters[4]);
  EXPECT_THAT(one.chains, ElementsAre("dca", "e"));
}

TEST(LateWakesTest, ManyTakersAreTold) {
  constexpr size_t kMany = 20;
  std::array<Letter, kMany> letters;
  std::array<Recorder, kMany> takers;
  {
    const LateWakes late;
    for (size_t i = 0; i < kMany; ++i) {
      letters[i].name = 'x';
      LateWakes::HandOver(&takers[i], &letters[i]);
    }
  }
  for (const Recorder& taker : takers) EXPECT_THAT(taker.chains, ElementsAre("x"));
}

}  // namespace
}  // namespace sru::server
