#include "models/files/file.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/checked.h"
#include "tests/testing/poll.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::sru::testing::Checked;
using ::testing::HasSubstr;

TEST(FileTest, ReadsWholeFiles) {
  TempDirectory directory;
  const std::string bytes(3 << 20, 'x');
  auto file = Checked(FileContents::Read(directory.Write("f", bytes), bytes.size()));
  EXPECT_EQ(file->bytes(), bytes);
  const FileContents moved = *std::move(file);
  EXPECT_EQ(moved.bytes(), bytes);
  file = FileContents::Read(directory.Write("empty", ""), 0);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes(), "");
}

// A clone without Git LFS has such a file in place of each large one.
TEST(FileTest, PointersOfGitLfsAreRefused) {
  TempDirectory directory;
  const std::string path = directory.Write(
      "f",
      "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e"
      "0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n");
  const absl::Status status = FileContents::Read(path, 1000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            path + ": is a pointer of Git LFS; fetch the file with `git lfs pull`");
}

// A repository with links of all kinds, and a file beside it that no model may show.
class LinksTest : public ::testing::Test {
 protected:
  LinksTest() {
    directory_.Write("secret/f", "secret");
    directory_.Write("root/m/1/f", "one");
    Link("f", "m/1/inside");
    Link("../1/f", "m/1/through_parent");
    Link("1", "m/2");
    Link("../n", "m/3");
    directory_.Write("root/n/f", "three");
    Link("../m/2/f", "n/chain");
    Link("../../../secret/f", "m/1/outside");
    Link("../../../root/m/1/f", "m/1/out_and_in");
    Link(directory_.path("root/m/1/f"), "m/1/absolute");
    Link(directory_.path("secret"), "absolute_folder");
    Link("../secret", "relative_folder");
    Link("/proc/self/root", "magic");
    Link("nowhere", "dangling");
  }

  void Link(const std::string& target, const std::string& name) {
    std::filesystem::create_symlink(target, directory_.path("root/" + name));
  }

  absl::StatusOr<FileContents> Read(const std::string& name) const {
    return FileContents::Read(FilePath(root_ + "/" + name, root_), 100);
  }

  // Returns the contents of a file, or the code of the error.
  std::string Found(const std::string& name) const {
    const auto file = Read(name);
    return file.ok() ? std::string(file->bytes()) : absl::StatusCodeToString(file.status().code());
  }

  TempDirectory directory_;
  const std::string root_ = directory_.path("root");
};

constexpr char kRefused[] = "INVALID_ARGUMENT";

TEST_F(LinksTest, StayWithinTheRoot) {
  EXPECT_EQ(Found("m/1/f"), "one");
  EXPECT_EQ(Found("m/1/inside"), "one");
  EXPECT_EQ(Found("m/1/through_parent"), "one");
  EXPECT_EQ(Found("m/2/f"), "one");
  EXPECT_EQ(Found("m/3/f"), "three");
  EXPECT_EQ(Found("n/chain"), "one");
  EXPECT_EQ(Found("dangling"), "NOT_FOUND");
  for (const char* name :
       {"m/1/outside", "m/1/out_and_in", "m/1/absolute", "absolute_folder/f", "relative_folder/f",
        "magic/etc/passwd", "../secret/f", "m/1/../../../secret/f", "m/2/outside"}) {
    EXPECT_EQ(Found(name), kRefused) << name;
  }
  EXPECT_THAT(std::string(Read("m/1/outside").status().message()),
              HasSubstr("expected links that stay in the repository"));
}

TEST_F(LinksTest, LeadAnywhereWithoutARoot) {
  const auto read = [&](const std::string& name) {
    return std::string(FileContents::Read(directory_.path("root/" + name), 100)->bytes());
  };
  EXPECT_EQ(read("m/1/outside"), "secret");
  EXPECT_EQ(read("absolute_folder/f"), "secret");
}

// The root itself is the operator's.
TEST_F(LinksTest, TheRootMayBeALink) {
  std::filesystem::create_symlink(root_, directory_.path("to_root"));
  const std::string root = directory_.path("to_root") + "/";
  EXPECT_EQ(FileContents::Read(FilePath(root + "/m/2/f", root), 100)->bytes(), "one");
  EXPECT_FALSE(FileContents::Read(FilePath(root + "m/1/outside", root), 100).ok());
}

// Between a check and an open there would be a moment for this.
TEST_F(LinksTest, AFileThatIsSwappedForALinkIsNeverFollowedOut) {
  std::atomic<bool> stop{false};
  std::thread swapper([&] {
    for (bool to_link = true; !stop; to_link = !to_link) {
      const std::string next = directory_.path("root/m/1/next");
      if (to_link) {
        std::filesystem::create_symlink("../../../secret/f", next);
      } else {
        std::ofstream(next) << "one";
      }
      std::filesystem::rename(next, directory_.path("root/m/1/f"));
    }
  });
  bool refused = false;
  bool read = false;
  for (int i = 0; i < 200000 && !(refused && read && i > 2000); ++i) {
    const std::string found = Found("m/1/f");
    ASSERT_TRUE(found == "one" || found == kRefused) << found;
    (found == "one" ? read : refused) = true;
  }
  stop = true;
  swapper.join();
  EXPECT_TRUE(refused && read);
}

// As before Linux 5.6, or in an emulator.
TEST_F(LinksTest, WithoutOpenat2NoLinkIsFollowed) {
  const pid_t child = fork();
  if (child == 0) {
    sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog filter = {4, program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
      _exit(77);
    }
    int wrong = 0;
    const auto expect = [&](const char* name, const char* found) {
      if (Found(name) != found) ++wrong;
    };
    expect("m/1/f", "one");
    expect("n/f", "three");
    expect("absent/f", "NOT_FOUND");
    for (const char* name : {"m/1/inside", "m/2/f", "m/1/outside", "absolute_folder/f", "dangling",
                             "relative_folder/f", "m/1/../1/f", "../secret/f"}) {
      expect(name, kRefused);
    }
    _exit(wrong);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no filters of system calls here";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "wrong answers";
}

// With a mapping the second line would be SIGBUS, and the third another model's weights.
TEST(FileTest, KeepsWhatItReadWhenTheFileIsCutOrChangedInPlace) {
  TempDirectory directory;
  const std::string path = directory.Write("f", std::string(1 << 20, 'a'));
  auto file = Checked(FileContents::Read(path, 1 << 20));
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(file->bytes(), std::string(1 << 20, 'a'));
  std::ofstream(path, std::ios::binary) << std::string(1 << 20, 'b');
  EXPECT_EQ(file->bytes(), std::string(1 << 20, 'a'));
}

TEST(OpenFileTest, ReadsPartsAndTellsWhetherTheyWereWrittenTo) {
  TempDirectory directory;
  const std::string path = directory.Write("f", "0123456789");
  std::filesystem::last_write_time(path, std::filesystem::file_time_type());
  auto opened = Checked(OpenFile::Open(path, 10));
  const OpenFile file = *std::move(opened);
  EXPECT_EQ(file.size(), 10u);
  std::string part(4, ' ');
  ASSERT_TRUE(file.Read(3, 4, part.data()).ok());
  EXPECT_EQ(part, "3456");
  // Another file in its place is none of its business.
  std::filesystem::rename(directory.Write("g", "abcdefghij"), path);
  ASSERT_TRUE(file.Read(3, 4, part.data()).ok());
  EXPECT_EQ(part, "3456");
  EXPECT_TRUE(file.CheckUnchanged().ok()) << file.CheckUnchanged();

  const std::string other = directory.Write("h", "0123456789");
  std::filesystem::last_write_time(other, std::filesystem::file_time_type());
  const auto changed = Checked(OpenFile::Open(other, 10));
  std::filesystem::resize_file(other, 5);
  const absl::Status cut = changed->Read(3, 4, part.data());
  EXPECT_EQ(cut.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("was cut to 5 bytes, from 10"));
  EXPECT_EQ(changed->CheckUnchanged().code(), absl::StatusCode::kAborted);

  // Whoever writes may set the time back, and that is seen, too.
  const std::string back = directory.Write("i", "0123456789");
  std::filesystem::last_write_time(back, std::filesystem::file_time_type());
  const auto set_back = Checked(OpenFile::Open(back, 10));
  EXPECT_TRUE(set_back->CheckUnchanged().ok());
  EXPECT_TRUE(testing::PollUntil([&] {  // the clock of a file system moves in ticks
    std::fstream(back, std::ios::in | std::ios::out) << "9876543210";
    std::filesystem::last_write_time(back, std::filesystem::file_time_type());
    return absl::IsAborted(set_back->CheckUnchanged());
  }));
}

TEST(FileTest, RefusesWhatItCannotRead) {
  TempDirectory directory;
  EXPECT_EQ(FileContents::Read(directory.path("absent"), 10).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(FileContents::Read(directory.path(), 10).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status status = FileContents::Read(directory.Write("f", "12345"), 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("expected at most 4 bytes, found 5"));
}

}  // namespace
}  // namespace sru::models
