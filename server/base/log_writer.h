// Keeps whoever logs from waiting for whoever reads the log. Lines are queued, up to a bound, and
// one thread writes them; when the queue is full, further lines are dropped and counted. A pipe
// that nobody reads or a disk that hangs therefore costs lines, never a call, a probe or a signal.
//
// Lines come out in the order in which Write() was called. Where lines were dropped, a line says
// how many, as soon as anything can be written again. Thread-safe.
#ifndef SRU_SERVER_BASE_LOG_WRITER_H_
#define SRU_SERVER_BASE_LOG_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/mutex.h"

namespace sru::server {

class LogWriter {
 public:
  struct Options {
    // What may wait, beside what is being written, which is as much at most.
    size_t max_bytes = 1 << 20;
    int64_t max_lines = 8192;
  };
  // Writes all of `text` and returns how many bytes of it got through: fewer when the rest is lost.
  // On the writer's thread, for as long as it takes.
  using Sink = std::function<size_t(absl::string_view text)>;
  // The line, with its line break, that says that so many were dropped.
  using LossLine = std::function<std::string(int64_t dropped)>;

  // Starts the thread, with all signals blocked, so that it may be started at any time. Without a
  // thread, because the system gives none, Write() calls the sink itself.
  LogWriter(const Options& options, Sink sink, LossLine loss_line);
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;
  // Waits until everything is written.
  ~LogWriter();

  // Takes one line, with its line break. Never blocks.
  void Write(absl::string_view line);

  // Waits until what was taken before is written, for `timeout` at most. Whether it is.
  bool Flush(absl::Duration timeout);

  // Lines that did not get through: no room, or the sink lost them.
  int64_t dropped() const;

 private:
  void Run();
  // How many lines of `text`, which ends one, did not get through.
  int64_t WriteOut(absl::string_view text);

  const Options options_;
  const Sink sink_;
  const LossLine loss_line_;

  mutable Mutex mutex_;
  CondVar queued_;
  CondVar written_;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::string queue_ ABSL_GUARDED_BY(mutex_);
  int64_t queue_lines_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t overflow_ ABSL_GUARDED_BY(mutex_) = 0;  // lines that found queue_ full
  int64_t taken_ ABSL_GUARDED_BY(mutex_) = 0;     // lines that were ever queued
  int64_t done_ ABSL_GUARDED_BY(mutex_) = 0;      // of these, written or lost
  int64_t dropped_ ABSL_GUARDED_BY(mutex_) = 0;   // since the start

  bool mid_line_ = false;  // of the thread: the sink lost the end of a line
  std::thread thread_;
};

}  // namespace sru::server

#endif  // SRU_SERVER_BASE_LOG_WRITER_H_
