#include "server/wiring/state_key_file.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"
#include "prometheus/text_serializer.h"
#include "server/base/log.h"
#include "tests/testing/test_files.h"

namespace sru::server::wiring {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class StateKeyFileTest : public ::testing::Test {
 protected:
  void Write(const std::string& text, fs::perms perms = fs::perms(0440)) {
    const std::string next = directory_.Write("next", text);
    fs::permissions(next, perms);
    fs::rename(next, path_);
  }
  void Look() {
    watcher_.Poll();
    watcher_.Poll();
  }

  models::TempDirectory directory_;
  const std::string path_ = directory_.path("keys");
  const std::string a_ = std::string(32, 'a');
  const std::string b_ = std::string(32, 'b');
  FileWatcher watcher_{absl::Hours(1)};
  prometheus::Registry registry_;
  transport::SecurityMetrics metrics_{&registry_};
};

TEST_F(StateKeyFileTest, TakesUpWhatChangesAndKeepsTheKeysWhenItIsBad) {
  Write(a_);
  const auto keys = WatchStateKeys(path_, &watcher_, &metrics_);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_THAT(*(*keys)->Get(), ElementsAre(a_));
  Write(b_ + "\n" + a_);
  Look();
  EXPECT_THAT(*(*keys)->Get(), ElementsAre(b_, a_));
  Write("short");
  Look();
  EXPECT_THAT(*(*keys)->Get(), ElementsAre(b_, a_));
  Write(a_, fs::perms(0444));
  Look();
  EXPECT_THAT(*(*keys)->Get(), ElementsAre(b_, a_));
  Write(b_);
  Look();
  EXPECT_THAT(*(*keys)->Get(), ElementsAre(b_));
  const std::string text = prometheus::TextSerializer().Serialize(registry_.Collect());
  EXPECT_THAT(text, AllOf(HasSubstr("\nsru_state_keys_reloads_total 2\n"),
                          HasSubstr("\nsru_state_keys_reload_failures_total 2\n")));
}

TEST_F(StateKeyFileTest, RefusesAFileThatOthersMayReadOrWrite) {
  for (const int mode : {0444, 0642, 0604}) {
    Write(a_, fs::perms(mode));
    const absl::Status status = WatchStateKeys(path_, &watcher_, &metrics_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << mode;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("--state_key_file: "), HasSubstr("chmod")));
  }
  fs::remove(path_);
  EXPECT_EQ(WatchStateKeys(path_, &watcher_, &metrics_).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(*WatchStateKeys("", &watcher_, &metrics_), nullptr);
}

}  // namespace
}  // namespace sru::server::wiring
