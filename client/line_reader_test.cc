#include "client/line_reader.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineReaderTest : public ::testing::Test {
 protected:
  LineReaderTest() { EXPECT_EQ(pipe(ends_), 0); }
  ~LineReaderTest() override {
    CloseInput();
    close(ends_[0]);
  }
  void Write(const std::string& text) {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseInput() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

  int ends_[2];
};

TEST_F(LineReaderTest, TheByteOrderMarkIsNoText) {
  Write("\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo\n");
  CloseInput();
  LineReader reader(ends_[0]);
  EXPECT_THAT(reader.NextBatch(9), ElementsAre("one", "\xEF\xBB\xBFtwo"));
}

TEST_F(LineReaderTest, CutsLinesIntoBatches) {
  Write("one\ntwo\r\n\nfour\nlast without an end");
  CloseInput();
  LineReader reader(ends_[0]);
  EXPECT_THAT(reader.NextBatch(2), ElementsAre("one", "two"));
  EXPECT_THAT(reader.NextBatch(2), ElementsAre("", "four"));
  EXPECT_THAT(reader.NextBatch(2), ElementsAre("last without an end"));
  EXPECT_THAT(reader.NextBatch(2), IsEmpty());
  EXPECT_THAT(reader.NextBatch(2), IsEmpty());
}

// The pipe stays open: a reader that waited for a full batch would block forever.
TEST_F(LineReaderTest, DoesNotWaitForAFullBatch) {
  LineReader reader(ends_[0]);
  Write("one\n");
  EXPECT_THAT(reader.NextBatch(100), ElementsAre("one"));
  Write("two\nthree\nhalf of ");
  EXPECT_THAT(reader.NextBatch(100), ElementsAre("two", "three"));
  Write("a line\n");
  EXPECT_THAT(reader.NextBatch(100), ElementsAre("half of a line"));
}

TEST_F(LineReaderTest, AnEmptyInputHasNoLines) {
  CloseInput();
  LineReader reader(ends_[0]);
  EXPECT_THAT(reader.NextBatch(10), IsEmpty());
}

TEST_F(LineReaderTest, AReadErrorIsNoEnd) {
  const int directory = open("/", O_RDONLY | O_CLOEXEC);
  LineReader reader(directory);
  EXPECT_THAT(reader.NextBatch(10), IsEmpty());
  EXPECT_EQ(reader.error(), EISDIR);
  close(directory);
}

TEST_F(LineReaderTest, ALineThatAnErrorCutsOffIsNoText) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  ASSERT_EQ(write(sockets[1], "one\nhalf", 8), 8);
  // A socket that closes before it has read everything resets the connection.
  ASSERT_EQ(write(sockets[0], "x", 1), 1);
  close(sockets[1]);
  LineReader reader(sockets[0]);
  EXPECT_THAT(reader.NextBatch(10), ElementsAre("one"));
  EXPECT_THAT(reader.NextBatch(10), IsEmpty());
  EXPECT_EQ(reader.error(), ECONNRESET);
  close(sockets[0]);
}

// The pipe stays open: a reader that was not stopped would block forever.
TEST_F(LineReaderTest, IsStopped) {
  const std::atomic<bool> stopped{true};
  LineReader reader(ends_[0], &stopped);
  EXPECT_THAT(reader.NextBatch(10), IsEmpty());
  EXPECT_EQ(reader.error(), 0);
}

TEST_F(LineReaderTest, LinesLongerThanTheBuffer) {
  const std::string half(30000, 'x');
  Write(half);
  Write(half + "\nshort\n");
  CloseInput();
  LineReader reader(ends_[0]);
  EXPECT_THAT(reader.NextBatch(10), ElementsAre(half + half, "short"));
}

}  // namespace
}  // namespace sru::client
