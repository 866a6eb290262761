#include "models/files/gzip.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/marian_files.h"
#include "tests/testing/test_files.h"

namespace sru::models {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMost = uint64_t{1} << 30;

class GzipTest : public ::testing::Test {
 protected:
  std::string Error(const std::string& bytes, uint64_t max_bytes = kMost) {
    return std::string(
        ReadPerhapsGzipped(directory_.Write("f.gz", bytes), max_bytes).status().message());
  }

  TempDirectory directory_;
};

TEST_F(GzipTest, ReadsCompressedAndOtherFiles) {
  for (const std::string& text : {std::string(), std::string("abc"), std::string(300000, 'x')}) {
    for (const char* name : {"f.gz", "f"}) {
      const bool gzip = std::string(name) == "f.gz";
      auto file =
          ReadPerhapsGzipped(directory_.Write(name, gzip ? testing::Gzip(text) : text), kMost);
      ASSERT_TRUE(file.ok()) << file.status();
      EXPECT_EQ(file->bytes(), text);
      EXPECT_EQ(DecompressedBytes(directory_.path(name)), text.size());
    }
  }
}

TEST_F(GzipTest, NoFileIsTakenForLargerThanItMayBe) {
  EXPECT_EQ(DecompressedBytes(directory_.Write("f.gz", "xxxx\xff\xff\xff\xff")), 1 << 20);
  EXPECT_EQ(DecompressedBytes(directory_.path("none.gz")), 0);
}

TEST_F(GzipTest, RefusesDamagedFiles) {
  const std::string good =
      testing::Gzip("The sentence of a test, which is neither short nor long.");
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_THAT(Error(good.substr(0, size)), HasSubstr("f.gz: ")) << size;
  }
  std::string bad = good;
  bad[good.size() - 8] ^= 1;
  EXPECT_THAT(Error(bad), HasSubstr("damaged or truncated")) << "the CRC";
  EXPECT_THAT(Error(good + good), HasSubstr("damaged or truncated")) << "a second member";
  EXPECT_THAT(Error(std::string(40, 'x')), HasSubstr("f.gz: not a gzip file"))
      << "such as a pointer of Git LFS";
  EXPECT_THAT(Error(good, 50), HasSubstr("expected at most 50 bytes"));
}

TEST_F(GzipTest, RefusesBombs) {
  // A thousand times as large as the file, honestly announced, and as announced too small.
  std::string bomb = testing::Gzip(std::string(size_t{64} << 20, '\0'));
  EXPECT_THAT(Error(bomb), HasSubstr("67108864 announced"));
  bomb.resize(bomb.size() - 4);
  EXPECT_THAT(Error(bomb + std::string("\x01\x00\x00\x00", 4)), HasSubstr("damaged or truncated"));
}

}  // namespace
}  // namespace sru::models
