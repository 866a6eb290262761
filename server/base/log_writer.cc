#include "server/base/log_writer.h"

#include <algorithm>
#include <csignal>
#include <system_error>
#include <utility>

#include "server/base/cores.h"

namespace sru::server {
namespace {

// Kept from one time to the next; more than this goes back to the allocator.
constexpr size_t kKeptBytes = 64 << 10;

int64_t CountLines(absl::string_view text) { return std::count(text.begin(), text.end(), '\n'); }

}  // namespace

LogWriter::LogWriter(const Options& options, Sink sink, LossLine loss_line)
    : options_(options), sink_(std::move(sink)), loss_line_(std::move(loss_line)) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // inherited by the thread
  try {
    thread_ = std::thread([this] { Run(); });
  } catch (const std::system_error&) {
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

LogWriter::~LogWriter() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  queued_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

void LogWriter::Write(absl::string_view line) {
  if (!thread_.joinable()) {
    const bool written = sink_(line) == line.size();
    MutexLock lock(&mutex_);
    dropped_ += written ? 0 : 1;
    return;
  }
  {
    MutexLock lock(&mutex_);
    // A line that is longer than the whole queue passes when there is nothing else.
    const bool room = queue_.empty() || (queue_.size() + line.size() <= options_.max_bytes &&
                                         queue_lines_ < options_.max_lines);
    // Once one was dropped those that follow are too, until the queue is taken: a short one that
    // still fitted would stand before the line that tells of the loss.
    if (!room || overflow_ > 0) {
      ++overflow_;
      ++dropped_;
      return;
    }
    queue_.append(line.data(), line.size());
    ++queue_lines_;
    ++taken_;
  }
  queued_.Signal();
}

bool LogWriter::Flush(absl::Duration timeout) {
  if (!thread_.joinable()) return true;
  int64_t wanted = 0;
  {
    MutexLock lock(&mutex_);
    wanted = taken_;
  }
  return WaitUntil(&mutex_, &written_, timeout,
                   [this, wanted]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return done_ >= wanted; });
}

int64_t LogWriter::dropped() const {
  MutexLock lock(&mutex_);
  return dropped_;
}

int64_t LogWriter::WriteOut(absl::string_view text) {
  if (mid_line_ && sink_("\n") == 1) mid_line_ = false;
  const size_t written = mid_line_ ? 0 : std::min(sink_(text), text.size());
  if (written == text.size()) return 0;
  if (written > 0) mid_line_ = text[written - 1] != '\n';
  return CountLines(text.substr(written));
}

void LogWriter::Run() {
  NameThisThread("sru_log");
  std::string batch;
  int64_t unreported = 0;  // lines that were lost before what is written next
  const auto report = [&] {
    if (unreported > 0 && WriteOut(loss_line_(unreported)) == 0) unreported = 0;
  };
  for (;;) {
    int64_t lines = 0;
    int64_t overflow = 0;
    {
      MutexLock lock(&mutex_);
      while (queue_.empty() && !stop_) queued_.Wait(&mutex_);
      if (queue_.empty()) return;
      batch.swap(queue_);
      lines = std::exchange(queue_lines_, 0);
      overflow = std::exchange(overflow_, 0);
    }
    report();
    const int64_t lost = WriteOut(batch);
    unreported += lost + overflow;
    report();
    batch.clear();
    if (batch.capacity() > kKeptBytes) batch.shrink_to_fit();
    {
      MutexLock lock(&mutex_);
      done_ += lines;
      dropped_ += lost;
    }
    written_.SignalAll();
  }
}

}  // namespace sru::server
