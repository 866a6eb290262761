#include "models/file.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::testing::HasSubstr;

TEST(FileTest, ReadsWholeFiles) {
  TempDirectory directory;
  const std::string bytes(3 << 20, 'x');
  auto file = FileContents::Read(directory.Write("f", bytes), bytes.size());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes(), bytes);
  const FileContents moved = *std::move(file);
  EXPECT_EQ(moved.bytes(), bytes);
  file = FileContents::Read(directory.Write("empty", ""), 0);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->bytes(), "");
}

// With a mapping the second line would be SIGBUS, and the third another model's weights.
TEST(FileTest, KeepsWhatItReadWhenTheFileIsCutOrChangedInPlace) {
  TempDirectory directory;
  const std::string path = directory.Write("f", std::string(1 << 20, 'a'));
  auto file = FileContents::Read(path, 1 << 20);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(path, 0);
  EXPECT_EQ(file->bytes(), std::string(1 << 20, 'a'));
  std::ofstream(path, std::ios::binary) << std::string(1 << 20, 'b');
  EXPECT_EQ(file->bytes(), std::string(1 << 20, 'a'));
}

TEST(OpenFileTest, ReadsPartsAndTellsWhetherTheyWereWrittenTo) {
  TempDirectory directory;
  const std::string path = directory.Write("f", "0123456789");
  std::filesystem::last_write_time(path, std::filesystem::file_time_type());
  auto opened = OpenFile::Open(path, 10);
  ASSERT_TRUE(opened.ok()) << opened.status();
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
  const auto changed = OpenFile::Open(other, 10);
  ASSERT_TRUE(changed.ok()) << changed.status();
  std::filesystem::resize_file(other, 5);
  const absl::Status cut = changed->Read(3, 4, part.data());
  EXPECT_EQ(cut.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(cut.message()), HasSubstr("was cut to 5 bytes, from 10"));
  EXPECT_EQ(changed->CheckUnchanged().code(), absl::StatusCode::kAborted);
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
