#include "server/base/file_watcher.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/base/cores.h"

namespace sru::server {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  char buffer[16384];
  while (file.good() && bytes.size() <= kMaxWatchedFileBytes) {
    file.read(buffer, sizeof(buffer));
    bytes.append(buffer, static_cast<size_t>(file.gcount()));
  }
  if (bytes.size() > kMaxWatchedFileBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot read '", path, "': longer than ", kMaxWatchedFileBytes, " bytes"));
  }
  if (!file.eof()) {
    return absl::NotFoundError(
        absl::StrCat("cannot read '", path, "': ", std::generic_category().message(errno)));
  }
  return bytes;
}

bool Same(const FileWatcher::Contents& a, const FileWatcher::Contents& b) {
  return a.ok() && b.ok() ? *a == *b : a.status() == b.status();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ReadFiles(const std::vector<std::string>& paths) {
  std::vector<std::string> contents;
  for (const std::string& path : paths) {
    if (path.empty()) {
      contents.emplace_back();
      continue;
    }
    absl::StatusOr<std::string> bytes = ReadFile(path);
    if (!bytes.ok()) return bytes.status();
    contents.push_back(*std::move(bytes));
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
    if (!settled || Same(group.last_seen, group.reported)) continue;
    group.reported = group.last_seen;
    group.on_change(group.reported);
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
    Poll();
    if (look_now) Poll();
  }
}

}  // namespace sru::server
