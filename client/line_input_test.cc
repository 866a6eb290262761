#include "client/line_input.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "client/read_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sru::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineInputTest : public ::testing::Test {
 protected:
  LineInputTest() { EXPECT_EQ(pipe(ends_), 0); }
  ~LineInputTest() override {
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

  static std::vector<std::string> Texts(LineInput* input, int max_items) {
    const auto items = input->Next(max_items);
    EXPECT_TRUE(items.ok()) << items.status();
    std::vector<std::string> texts;
    for (const LineInput::Item& item : items.value_or(std::vector<LineInput::Item>())) {
      texts.push_back(item.text);
    }
    return texts;
  }

  int ends_[2];
};

TEST_F(LineInputTest, TheByteOrderMarkIsNoText) {
  Write("\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo\n");
  CloseInput();
  LineInput input({}, /*skips_blank=*/false, ends_[0]);
  EXPECT_THAT(Texts(&input, 9), ElementsAre("one", "\xEF\xBB\xBFtwo"));
}

TEST_F(LineInputTest, CutsLinesIntoBatches) {
  Write("one\ntwo\r\n\nfour\nlast without an end");
  CloseInput();
  LineInput input({}, /*skips_blank=*/false, ends_[0]);
  EXPECT_THAT(Texts(&input, 2), ElementsAre("one", "two"));
  EXPECT_THAT(Texts(&input, 2), ElementsAre("", "four"));
  EXPECT_THAT(Texts(&input, 2), ElementsAre("last without an end"));
  EXPECT_THAT(Texts(&input, 2), IsEmpty());
  EXPECT_THAT(Texts(&input, 2), IsEmpty());
}

// A batch is filled with what follows.
TEST_F(LineInputTest, BlankLinesAreSkipped) {
  Write("one\n \n\ntwo\nthree\n\n");
  CloseInput();
  LineInput input({}, /*skips_blank=*/true, ends_[0]);
  EXPECT_THAT(Texts(&input, 2), ElementsAre("one", "two"));
  const auto last = input.Next(2);
  ASSERT_EQ(last->size(), 1u);
  EXPECT_EQ(input.Where(last->front()), "line 5");
  EXPECT_THAT(Texts(&input, 2), IsEmpty());
}

// The pipe stays open: a reader that waited for a full batch would block forever.
TEST_F(LineInputTest, DoesNotWaitForAFullBatch) {
  LineInput input({}, /*skips_blank=*/false, ends_[0]);
  Write("one\n");
  EXPECT_THAT(Texts(&input, 100), ElementsAre("one"));
  Write("two\nthree\nhalf of ");
  EXPECT_THAT(Texts(&input, 100), ElementsAre("two", "three"));
  Write("a line\n");
  EXPECT_THAT(Texts(&input, 100), ElementsAre("half of a line"));
}

TEST_F(LineInputTest, AnEmptyInputHasNoLines) {
  CloseInput();
  LineInput input({}, /*skips_blank=*/false, ends_[0]);
  EXPECT_THAT(Texts(&input, 10), IsEmpty());
}

TEST_F(LineInputTest, AReadErrorIsNoEnd) {
  const int directory = open("/", O_RDONLY | O_CLOEXEC);
  LineInput input({}, /*skips_blank=*/false, directory);
  EXPECT_EQ(input.Next(10).status(), CannotBeRead("standard input", EISDIR));
  close(directory);
}

TEST_F(LineInputTest, ALineThatAnErrorCutsOffIsNoText) {
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  ASSERT_EQ(write(sockets[1], "one\nhalf", 8), 8);
  // A socket that closes before it has read everything resets the connection.
  ASSERT_EQ(write(sockets[0], "x", 1), 1);
  close(sockets[1]);
  LineInput input({}, /*skips_blank=*/false, sockets[0]);
  EXPECT_THAT(Texts(&input, 10), ElementsAre("one"));
  EXPECT_EQ(input.Next(10).status(), CannotBeRead("standard input", ECONNRESET));
  close(sockets[0]);
}

// The pipe stays open: a reader that was not stopped would block forever.
TEST_F(LineInputTest, IsStopped) {
  LineInput input({}, /*skips_blank=*/false, ends_[0]);
  input.Stop();
  EXPECT_EQ(input.Next(10).status().code(), absl::StatusCode::kCancelled);
}

TEST_F(LineInputTest, LinesLongerThanTheBuffer) {
  const std::string half(30000, 'x');
  Write(half);
  Write(half + "\nshort\n");
  CloseInput();
  LineInput input({}, /*skips_blank=*/false, ends_[0]);
  EXPECT_THAT(Texts(&input, 10), ElementsAre(half + half, "short"));
}

}  // namespace
}  // namespace sru::client
