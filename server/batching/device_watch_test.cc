#include "server/batching/device_watch.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::server::batching {
namespace {

using ::testing::ElementsAre;

TEST(DeviceWatchTest, TellsEachDeviceOnceInOrderAlsoWhatCameBeforeTheStart) {
  std::vector<std::string> told;  // read after Stop()
  DeviceWatch watch([&told](int device, const absl::Status& error) {
    told.push_back(absl::StrCat(device, " ", error.message()));
  });
  watch.Report(3, absl::UnavailableError("first"));
  watch.Report(3, absl::UnavailableError("again"));
  watch.Start();
  watch.Report(1, absl::UnavailableError("second"));
  watch.Stop();
  EXPECT_THAT(told, ElementsAre("3 first", "1 second"));
  // The engines may outlive the watch's thread; what they report then is only recorded.
  watch.Report(2, absl::UnavailableError("late"));
  EXPECT_THAT(watch.lost(), ElementsAre(1, 2, 3));
  EXPECT_EQ(told.size(), 2u);
}

TEST(DeviceWatchTest, StopWithoutStart) {
  DeviceWatch watch([](int, const absl::Status&) { FAIL(); });
  watch.Report(0, absl::UnavailableError("early"));
  watch.Stop();
}

}  // namespace
}  // namespace sru::server::batching
