#include "client/line_reader.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

namespace sru::client {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // as editors of Windows write it
constexpr int kLookAroundMs = 100;  // between looks at whether the reader is stopped

}  // namespace

std::vector<std::string> LineReader::NextBatch(int max_lines) {
  std::vector<std::string> lines;
  std::string line;
  while (static_cast<int>(lines.size()) < max_lines) {
    if (TakeLine(&line)) {
      lines.push_back(std::move(line));
    } else if (end_ || !Fill(lines.empty() ? -1 : 0)) {
      // At the end, TakeLine() returns the rest after the last line end.
      if (!end_ || !TakeLine(&line)) break;
      lines.push_back(std::move(line));
    }
  }
  return lines;
}

bool LineReader::TakeLine(std::string* line) {
  const size_t newline = buffer_.find('\n', std::max(begin_, searched_));
  size_t end = newline;
  if (newline == std::string::npos) {
    searched_ = buffer_.size();
    if (!end_ || error_ != 0 || begin_ == buffer_.size()) return false;
    end = buffer_.size();
  }
  const size_t next = newline == std::string::npos ? end : end + 1;
  line->assign(buffer_, begin_, end - begin_);
  if (!line->empty() && line->back() == '\r') line->pop_back();
  begin_ = next;
  if (!std::exchange(begun_, true) &&
      line->compare(0, kByteOrderMark.size(), kByteOrderMark) == 0) {
    line->erase(0, kByteOrderMark.size());
  }
  return true;
}

bool LineReader::Fill(int timeout_ms) {
  pollfd descriptor = {fd_, POLLIN, 0};
  int ready = 0;
  do {
    if (stopped_ != nullptr && *stopped_) return false;
    ready = poll(&descriptor, 1, timeout_ms < 0 ? kLookAroundMs : timeout_ms);
  } while ((ready < 0 && errno == EINTR) || (ready == 0 && timeout_ms < 0));
  if (ready == 0) return false;
  buffer_.erase(0, begin_);
  searched_ -= std::min(searched_, begin_);
  begin_ = 0;
  char chunk[65536];
  ssize_t size = 0;
  do {
    size = read(fd_, chunk, sizeof(chunk));
  } while (size < 0 && errno == EINTR);
  if (size <= 0) {
    error_ = size < 0 ? errno : 0;
    end_ = true;
    return false;
  }
  buffer_.append(chunk, static_cast<size_t>(size));
  return true;
}

}  // namespace sru::client
