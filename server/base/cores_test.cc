#include "server/base/cores.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
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
  EXPECT_LE(NumCores(), static_cast<int>(allowed.size()));
}

TEST(CoresTest, AQuotaOfProcessorTimeIsABound) {
  const int allowed = static_cast<int>(AllowedCores().size());
  const struct {
    const char* groups;  // of the process
    std::vector<std::pair<const char*, const char*>> files;
    int cores;
  } kCases[] = {
      {"0::/pod/app\n", {{"pod/app/cpu.max", "100001 100000\n"}}, 2},  // rounded up
      {"0::/pod/app\n",
       {{"pod/app/cpu.max", "max 100000\n"}, {"pod/cpu.max", "50000 100000\n"}},
       1},  // of a group above
      {"0::/\n", {{"cpu.max", "max 100000\n"}}, allowed},
      {"0::/\n", {{"cpu.max", "6400000 100000\n"}}, allowed},  // more than there are
      {"0::/\n", {{"cpu.max", "garbage"}}, allowed},
      {"4:cpu,cpuacct:/app\n0::/app\n",
       {{"cpu/app/cpu.cfs_quota_us", "100000\n"}, {"cpu/app/cpu.cfs_period_us", "100000\n"}},
       1},
      {"4:cpu,cpuacct:/app\n",
       {{"cpu/app/cpu.cfs_quota_us", "-1\n"}, {"cpu/app/cpu.cfs_period_us", "100000\n"}},
       allowed},
      {"", {}, allowed},
  };
  for (const auto& test : kCases) {
    const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / "quota";
    const auto write = [&root](const std::string& path, const char* text) {
      std::filesystem::create_directories((root / path).parent_path());
      std::ofstream(root / path) << text;
    };
    write("proc/self/cgroup", test.groups);
    for (const auto& [file, text] : test.files) {
      write(std::string("sys/fs/cgroup/") + file, text);
    }
    EXPECT_EQ(NumCores(root.string()), std::min(test.cores, allowed)) << test.groups;
    std::filesystem::remove_all(root);
  }
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

TEST(CoresTest, ShortSlicesLeaveAThreadsRankAsItIs) {
  std::thread([] {
    ASSERT_EQ(setpriority(PRIO_PROCESS, gettid(), 7), 0);
    TakeShortSlices();
    EXPECT_EQ(getpriority(PRIO_PROCESS, gettid()), 7);
    EXPECT_EQ(sched_getscheduler(0), SCHED_OTHER);
  }).join();
}

}  // namespace
}  // namespace sru::server
