#include "server/base/file_watcher.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/base/cores.h"

namespace sru::server {
namespace {

absl::Status CannotRead(const std::string& path, int error) {
  return absl::NotFoundError(
      absl::StrCat("cannot read '", path, "': ", std::generic_category().message(error)));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  // Non-blocking, so that a pipe in place of a file is refused rather than waited for.
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return CannotRead(path, errno);
  const absl::Cleanup closer = [fd] { close(fd); };
  struct stat info;
  if (fstat(fd, &info) != 0) return CannotRead(path, errno);
  if (!S_ISREG(info.st_mode)) {
    return InvalidArgument("cannot read '", path, "': expected a regular file",
                           S_ISDIR(info.st_mode) ? ", found a directory" : "");
  }
  std::string bytes;
  char buffer[16384];
  for (;;) {
    const ssize_t count = read(fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return CannotRead(path, errno);
    if (count == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(count));
    if (bytes.size() > kMaxWatchedFileBytes) {
      return InvalidArgument("cannot read '", path, "': longer than ", kMaxWatchedFileBytes,
                             " bytes");
    }
  }
}

bool Same(const FileWatcher::Contents& a, const FileWatcher::Contents& b) {
  return a.ok() && b.ok() ? *a == *b : a.status() == b.status();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> contents;
  for (const std::string& path : paths) {
    SRU_ASSIGN_OR_RETURN(contents.emplace_back(), path.empty() ? "" : ReadFile(path));
  }
  return contents;
}

FileWatcher::~FileWatcher() {
  {
    MutexLock lock(&mutex_);
    stop_ = true;
  }
  changed_.SignalAll();
  if (thread_.joinable()) thread_.join();
}

void FileWatcher::Watch(Read read, Contents known, OnChange on_change) {
  groups_.push_back({std::move(read), known, known, std::move(on_change)});
}

void FileWatcher::Start() {
  if (!groups_.empty()) thread_ = std::thread([this] { Run(); });
}

void FileWatcher::Poll() {
  for (Group& group : groups_) {
    Contents seen = group.read();
    const bool settled = Same(seen, group.last_seen);
    group.last_seen = std::move(seen);
    if (!settled) continue;
    const bool is_due = !group.is_used && ++group.looks >= kLooksToRetry;
    if (!is_due && Same(group.last_seen, group.reported)) continue;
    group.looks = 0;
    group.reported = group.last_seen;
    group.is_used = group.on_change(group.reported);
  }
  if (each_look_ != nullptr) each_look_();
}

void FileWatcher::LookNow() {
  {
    MutexLock lock(&mutex_);
    look_now_ = true;
  }
  changed_.SignalAll();
}

void FileWatcher::Run() {
  NameThisThread("sru_files");
  for (;;) {
    bool look_now = false;
    {
      MutexLock lock(&mutex_);
      if (!stop_ && !look_now_) changed_.WaitFor(&mutex_, interval_);
      if (stop_) return;
      look_now = std::exchange(look_now_, false);
    }
    if (look_now) {
      for (Group& group : groups_) group.looks = kLooksToRetry;
      Poll();
    }
    Poll();
  }
}

}  // namespace sru::server
