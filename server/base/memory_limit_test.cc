#include "server/base/memory_limit.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace sru::server {
namespace {

constexpr int64_t kMiB = 1 << 20;

// A directory with the files of proc and sys that a test writes.
class MemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) /
            ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    Write("proc/meminfo", "MemTotal:  8388608 kB\nMemFree:   100 kB\nMemAvailable: 4194304 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  void WriteGroup2(const std::string& directory, const std::string& limit, int64_t used,
                   int64_t inactive) {
    Write(directory + "/memory.max", limit + "\n");
    Write(directory + "/memory.current", std::to_string(used) + "\n");
    Write(directory + "/memory.stat",
          "anon 4096\nfile 9\ninactive_file " + std::to_string(inactive) + "\nactive_file 77\n");
  }
  void WriteGroup1(const std::string& directory, int64_t limit, int64_t used, int64_t inactive) {
    Write(directory + "/memory.limit_in_bytes", std::to_string(limit) + "\n");
    Write(directory + "/memory.usage_in_bytes", std::to_string(used) + "\n");
    Write(directory + "/memory.stat",
          "inactive_file 1\ntotal_inactive_file " + std::to_string(inactive) + "\n");
  }
  MemoryLimits Read() const { return ReadMemoryLimits(root_.string()); }

  std::filesystem::path root_;
};

TEST_F(MemoryLimitTest, TheMachineWithoutControlGroups) {
  const MemoryLimits limits = Read();
  EXPECT_EQ(limits.limit_bytes, 8192 * kMiB);
  EXPECT_EQ(limits.used_bytes, 4096 * kMiB);
  EXPECT_EQ(limits.available_bytes, 4096 * kMiB);
}

TEST_F(MemoryLimitTest, Version2LeavesOutTheReclaimableCache) {
  Write("proc/self/cgroup", "0::/app\n");
  WriteGroup2("sys/fs/cgroup/app", std::to_string(1024 * kMiB), 700 * kMiB, 200 * kMiB);
  const MemoryLimits limits = Read();
  EXPECT_EQ(limits.limit_bytes, 1024 * kMiB);
  EXPECT_EQ(limits.used_bytes, 500 * kMiB);
  EXPECT_EQ(limits.available_bytes, 524 * kMiB);
}

TEST_F(MemoryLimitTest, GroupsAboveCount) {
  Write("proc/self/cgroup", "0::/slice/pod/container\n");
  WriteGroup2("sys/fs/cgroup/slice/pod/container", "max", 10 * kMiB, 0);
  WriteGroup2("sys/fs/cgroup/slice/pod", std::to_string(512 * kMiB), 100 * kMiB, 0);
  WriteGroup2("sys/fs/cgroup/slice", std::to_string(2048 * kMiB), 1984 * kMiB, 0);
  const MemoryLimits limits = Read();
  EXPECT_EQ(limits.limit_bytes, 512 * kMiB);
  EXPECT_EQ(limits.used_bytes, 100 * kMiB);
  EXPECT_EQ(limits.available_bytes, 64 * kMiB);  // of the slice
}

TEST_F(MemoryLimitTest, AContainersOwnRootInItsNameSpace) {
  Write("proc/self/cgroup", "0::/\n");
  Write("proc/self/mountinfo",
        "29 24 0:26 / /sys/fs/cgroup ro,nosuid shared:4 - cgroup2 cgroup rw,nsdelegate\n");
  WriteGroup2("sys/fs/cgroup", std::to_string(256 * kMiB), 64 * kMiB, 0);
  EXPECT_EQ(Read().limit_bytes, 256 * kMiB);
}

TEST_F(MemoryLimitTest, Version1UnderAPathOfTheHost) {
  Write("proc/self/cgroup", "5:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n0::/docker/abc\n");
  Write("proc/self/mountinfo",
        "30 29 0:27 /docker/abc /groups/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
        "31 29 0:28 /docker/abc /groups/memory ro master:15 - cgroup cgroup rw,memory\n");
  WriteGroup1("groups/memory", 300 * kMiB, 200 * kMiB, 50 * kMiB);
  WriteGroup1("groups/memory/docker/abc", kMiB, kMiB, 0);  // of somebody else
  const MemoryLimits limits = Read();
  EXPECT_EQ(limits.limit_bytes, 300 * kMiB);
  EXPECT_EQ(limits.used_bytes, 150 * kMiB);
}

TEST_F(MemoryLimitTest, Version1WithoutALimit) {
  Write("proc/self/cgroup", "4:memory:/app\n");
  WriteGroup1("sys/fs/cgroup/memory/app", 9223372036854771712, 200 * kMiB, 0);
  EXPECT_EQ(Read().limit_bytes, 8192 * kMiB);
}

TEST_F(MemoryLimitTest, ALimitAboveTheMachinesIsTheMachines) {
  Write("proc/self/cgroup", "0::/app\n");
  WriteGroup2("sys/fs/cgroup/app", std::to_string(100000 * kMiB), 6144 * kMiB, 0);
  const MemoryLimits limits = Read();
  EXPECT_EQ(limits.limit_bytes, 8192 * kMiB);
  EXPECT_EQ(limits.available_bytes, 4096 * kMiB);
}

TEST_F(MemoryLimitTest, MoreCacheThanUseAndMoreUseThanLimitStayInBounds) {
  Write("proc/self/cgroup", "0::/app\n");
  WriteGroup2("sys/fs/cgroup/app", std::to_string(64 * kMiB), kMiB, 2 * kMiB);
  EXPECT_EQ(Read().used_bytes, 0);
  WriteGroup2("sys/fs/cgroup/app", std::to_string(64 * kMiB), 65 * kMiB, 0);
  EXPECT_EQ(Read().used_bytes, 64 * kMiB);
  EXPECT_EQ(Read().available_bytes, 0);
}

TEST_F(MemoryLimitTest, NothingToReadIsZero) {
  std::filesystem::remove_all(root_);
  const MemoryLimits limits = Read();
  EXPECT_EQ(limits.limit_bytes, 0);
  EXPECT_EQ(limits.used_bytes, 0);
  EXPECT_EQ(limits.available_bytes, 0);
}

TEST_F(MemoryLimitTest, ThisMachineHasSome) {
  const MemoryLimits limits = ReadMemoryLimits();
  EXPECT_GT(limits.limit_bytes, 0);
  EXPECT_GE(limits.limit_bytes - limits.used_bytes, limits.available_bytes);
}

}  // namespace
}  // namespace sru::server
