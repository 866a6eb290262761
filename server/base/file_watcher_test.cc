#include "server/base/file_watcher.h"

#include <sys/stat.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/notification.h"
#include "tests/testing/test_files.h"

namespace sru::server {
namespace {

using ::sru::testing::Notification;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FileWatcherTest : public ::testing::Test {
 protected:
  void Watch() {
    const auto read = [this] { return ReadFiles({directory_.path("a"), directory_.path("b")}); };
    watcher_.Watch(read, read(), [this](const FileWatcher::Contents& contents) {
      reports_.push_back(contents);
      return is_used_;
    });
  }

  models::TempDirectory directory_;
  FileWatcher watcher_{absl::Hours(1)};
  std::vector<FileWatcher::Contents> reports_;
  bool is_used_ = true;  // what is reported
};

TEST_F(FileWatcherTest, ReportsAChangeOnceItHasSettled) {
  directory_.Write("a", "1");
  directory_.Write("b", "1");
  Watch();
  watcher_.Poll();
  watcher_.Poll();
  EXPECT_TRUE(reports_.empty());

  directory_.Write("a", "2");
  watcher_.Poll();  // sees it
  directory_.Write("b", "2");
  watcher_.Poll();  // sees that it goes on
  EXPECT_TRUE(reports_.empty());
  watcher_.Poll();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(*reports_[0], ElementsAre("2", "2"));
  watcher_.Poll();
  EXPECT_EQ(reports_.size(), 1u);
}

TEST_F(FileWatcherTest, WhatIsNotInUseIsReportedAgain) {
  directory_.Write("a", "1");
  directory_.Write("b", "1");
  Watch();
  is_used_ = false;
  directory_.Write("a", "2");
  watcher_.Poll();
  for (int i = 0; i < FileWatcher::kLooksToRetry; ++i) watcher_.Poll();
  ASSERT_EQ(reports_.size(), 1u);
  is_used_ = true;
  watcher_.Poll();
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_THAT(*reports_[1], ElementsAre("2", "1"));
  for (int i = 0; i < 2 * FileWatcher::kLooksToRetry; ++i) watcher_.Poll();
  EXPECT_EQ(reports_.size(), 2u);
}

TEST_F(FileWatcherTest, AChangeThatIsTakenBackIsNone) {
  directory_.Write("a", "1");
  directory_.Write("b", "1");
  Watch();
  directory_.Write("a", "2");
  watcher_.Poll();
  directory_.Write("a", "1");
  watcher_.Poll();
  watcher_.Poll();
  EXPECT_TRUE(reports_.empty());
}

TEST_F(FileWatcherTest, AFileThatGoesIsAnErrorAndItsReturnAChange) {
  directory_.Write("a", "1");
  directory_.Write("b", "1");
  Watch();
  std::filesystem::remove(directory_.path("b"));
  for (int i = 0; i < 4; ++i) watcher_.Poll();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(std::string(reports_[0].status().message()), HasSubstr(directory_.path("b")));
  directory_.Write("b", "1");
  for (int i = 0; i < 4; ++i) watcher_.Poll();
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_THAT(*reports_[1], ElementsAre("1", "1"));
}

// What is there is taken at once, by the thread, however long its interval is.
TEST(FileWatcherThreadTest, LooksAtOnceWhenAsked) {
  models::TempDirectory directory;
  directory.Write("a", "1");
  Notification reported;
  FileWatcher watcher(absl::Hours(1));
  const FileWatcher::Read read = [&] { return ReadFiles({directory.path("a")}); };
  watcher.Watch(read, read(), [&](const FileWatcher::Contents& contents) {
    EXPECT_THAT(*contents, ElementsAre("2"));
    reported.Notify();
    return true;
  });
  watcher.Start();
  directory.Write("a", "2");
  watcher.LookNow();
  EXPECT_TRUE(reported.Wait());
}

// Kubernetes replaces mounted secrets so.
TEST_F(FileWatcherTest, FollowsSymbolicLinks) {
  namespace fs = std::filesystem;
  directory_.Write("old/a", "1");
  directory_.Write("old/b", "1");
  directory_.Write("new/a", "2");
  directory_.Write("new/b", "2");
  fs::create_directory_symlink(directory_.path("old"), directory_.path("..data"));
  fs::create_symlink("..data/a", directory_.path("a"));
  fs::create_symlink("..data/b", directory_.path("b"));
  Watch();
  fs::create_directory_symlink(directory_.path("new"), directory_.path("..tmp"));
  fs::rename(directory_.path("..tmp"), directory_.path("..data"));
  watcher_.Poll();
  watcher_.Poll();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(*reports_[0], ElementsAre("2", "2"));
}

// Nobody writes to the pipe: opening it as a file would wait for ever.
TEST_F(FileWatcherTest, APipeInPlaceOfAFileIsAnErrorAndIsNotWaitedFor) {
  directory_.Write("a", "1");
  directory_.Write("b", "1");
  Watch();
  std::filesystem::remove(directory_.path("b"));
  ASSERT_EQ(mkfifo(directory_.path("b").c_str(), 0600), 0);
  for (int i = 0; i < 4; ++i) watcher_.Poll();
  ASSERT_EQ(reports_.size(), 1u);
  EXPECT_THAT(std::string(reports_[0].status().message()),
              HasSubstr(directory_.path("b") + "': expected a regular file"));
  std::filesystem::remove(directory_.path("b"));
  directory_.Write("b", "2");
  for (int i = 0; i < 4; ++i) watcher_.Poll();
  ASSERT_EQ(reports_.size(), 2u);
  EXPECT_THAT(*reports_[1], ElementsAre("1", "2"));
}

TEST(ReadFilesTest, ErrorsNameTheFile) {
  models::TempDirectory directory;
  EXPECT_THAT(std::string(ReadFiles({directory.path("none")}).status().message()),
              HasSubstr(directory.path("none") + "': No such file"));
  EXPECT_THAT(std::string(ReadFiles({directory.path("")}).status().message()),
              HasSubstr("directory"));
  directory.Write("large", std::string(kMaxWatchedFileBytes + 1, 'x'));
  EXPECT_THAT(std::string(ReadFiles({directory.path("large")}).status().message()),
              HasSubstr("longer than"));
  EXPECT_THAT(*ReadFiles({""}), ElementsAre(""));
}

}  // namespace
}  // namespace sru::server
