#include "server/base/cores.h"

#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(CoresTest, PinsTheCallingThreadOnly) {
  const std::vector<int> allowed = AllowedCores();
  ASSERT_THAT(allowed, Not(IsEmpty()));
  for (int core : {allowed.front(), allowed.back()}) {
    std::thread([core] {
      const absl::Status status = PinThisThread(core);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_THAT(AllowedCores(), ElementsAre(core));
      EXPECT_EQ(NumCores(), 1);
    }).join();
  }
  EXPECT_EQ(AllowedCores(), allowed);
  EXPECT_EQ(NumCores(), static_cast<int>(allowed.size()));
}

TEST(CoresTest, ACoreThatIsNotThereIsAnError) {
  std::thread([] {
    const std::vector<int> allowed = AllowedCores();
    EXPECT_EQ(PinThisThread(-1).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(PinThisThread(1 << 16).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_FALSE(PinThisThread((1 << 16) - 1).ok());
    EXPECT_EQ(AllowedCores(), allowed);
  }).join();
}

}  // namespace
}  // namespace sru::server
