#include "server/base/log_writer.h"

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "gtest/gtest.h"

namespace sru::server {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

std::string LossLine(int64_t dropped) { return absl::StrCat("lost ", dropped, "\n"); }

// What the writer writes to: a pipe that is read, is not read, or a disk that is full.
class Output {
 public:
  LogWriter::Sink sink() {
    return [this](absl::string_view text) { return Take(text); };
  }

  // From now on writing does not return.
  void Stall() {
    MutexLock lock(&mutex_);
    stalled_ = true;
  }
  void Continue() {
    MutexLock lock(&mutex_);
    stalled_ = false;
    changed_.SignalAll();
  }
  // So many bytes more get through.
  void SetRoom(size_t bytes) {
    MutexLock lock(&mutex_);
    room_ = bytes;
  }
  // Until the writer is inside of a write that stalls.
  void AwaitStalledWrite() {
    MutexLock lock(&mutex_);
    while (!waiting_) changed_.Wait(&mutex_);
  }
  std::string text() {
    MutexLock lock(&mutex_);
    return text_;
  }

 private:
  size_t Take(absl::string_view text) {
    MutexLock lock(&mutex_);
    while (stalled_) {
      waiting_ = true;
      changed_.SignalAll();
      changed_.Wait(&mutex_);
    }
    waiting_ = false;
    const absl::string_view through = text.substr(0, room_);
    room_ -= through.size();
    absl::StrAppend(&text_, through);
    return through.size();
  }

  Mutex mutex_;
  CondVar changed_;
  bool stalled_ ABSL_GUARDED_BY(mutex_) = false;
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;
  size_t room_ ABSL_GUARDED_BY(mutex_) = std::string::npos;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};

TEST(LogWriterTest, LinesComeOutInOrderAndAtOnce) {
  Output output;
  LogWriter writer({}, output.sink(), &LossLine);
  std::string expected;
  for (int i = 0; i < 1000; ++i) {
    const std::string line = absl::StrCat("line ", i, "\n");
    writer.Write(line);
    absl::StrAppend(&expected, line);
  }
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_EQ(output.text(), expected);
  EXPECT_EQ(writer.dropped(), 0);
}

TEST(LogWriterTest, TheDestructorWritesWhatWaits) {
  Output output;
  {
    LogWriter writer({}, output.sink(), &LossLine);
    output.Stall();
    writer.Write("one\n");
    output.AwaitStalledWrite();
    writer.Write("two\n");
    output.Continue();
  }
  EXPECT_EQ(output.text(), "one\ntwo\n");
}

TEST(LogWriterTest, NobodyWaitsForAStalledOutputAndTheLossIsToldInItsPlace) {
  Output output;
  LogWriter::Options options;
  options.max_lines = 3;
  LogWriter writer(options, output.sink(), &LossLine);
  output.Stall();
  writer.Write("0\n");
  output.AwaitStalledWrite();
  for (const char* line : {"1\n", "2\n", "3\n", "4\n", "5\n"}) writer.Write(line);
  EXPECT_EQ(writer.dropped(), 2);
  EXPECT_FALSE(writer.Flush(absl::Milliseconds(1)));
  output.Continue();
  ASSERT_TRUE(writer.Flush(kLong));
  writer.Write("6\n");
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_EQ(output.text(), "0\n1\n2\n3\nlost 2\n6\n");
  EXPECT_EQ(writer.dropped(), 2);
}

TEST(LogWriterTest, BytesAreBoundedToo) {
  Output output;
  LogWriter::Options options;
  options.max_bytes = 10;
  LogWriter writer(options, output.sink(), &LossLine);
  output.Stall();
  writer.Write("0\n");
  output.AwaitStalledWrite();
  writer.Write("1234567\n");
  writer.Write("12\n");  // one byte too many
  writer.Write("\n");    // would fit, but after one that is lost
  EXPECT_EQ(writer.dropped(), 2);
  output.Continue();
  ASSERT_TRUE(writer.Flush(kLong));
  const std::string long_line = std::string(100, 'x') + "\n";
  writer.Write(long_line);  // longer than the bound, but alone
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_EQ(output.text(), "0\n1234567\nlost 2\n" + long_line);
}

TEST(LogWriterTest, GoesOnAfterAFullDisk) {
  Output output;
  LogWriter writer({}, output.sink(), &LossLine);
  output.SetRoom(6);
  output.Stall();
  writer.Write("a\n");
  output.AwaitStalledWrite();
  for (const char* line : {"b\n", "cut here\n", "c\n"}) writer.Write(line);
  output.Continue();
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_EQ(output.text(), "a\nb\ncu");
  EXPECT_EQ(writer.dropped(), 2);  // the one that was cut too
  writer.Write("d\n");             // no room still
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_EQ(writer.dropped(), 3);
  output.SetRoom(std::string::npos);
  writer.Write("e\n");
  ASSERT_TRUE(writer.Flush(kLong));
  EXPECT_EQ(output.text(), "a\nb\ncu\nlost 3\ne\n");
}

TEST(LogWriterTest, LinesOfSeveralThreadsStayWhole) {
  Output output;
  std::string expected_line = std::string(50, 'x') + "\n";
  {
    LogWriter writer({}, output.sink(), &LossLine);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < 500; ++i) writer.Write(expected_line);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::string expected;
  for (int i = 0; i < 2000; ++i) expected += expected_line;
  EXPECT_EQ(output.text(), expected);
}

}  // namespace
}  // namespace sru::server
