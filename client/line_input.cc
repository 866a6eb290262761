#include "client/line_input.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/read_file.h"

namespace sru::client {
namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";  // as editors of Windows write it
constexpr int kLookAroundMs = 100;  // between looks at whether the reader is stopped

}  // namespace

LineInput::LineInput(std::vector<std::string> arguments, bool skips_blank, int fd)
    : arguments_(std::move(arguments)), skips_blank_(skips_blank), fd_(fd) {}

absl::StatusOr<std::vector<LineInput::Item>> LineInput::Next(int max_items) {
  std::vector<Item> items;
  const auto is_full = [&] { return static_cast<int>(items.size()) >= max_items; };
  if (!arguments_.empty()) {
    // An empty argument is a mistake that the server should name.
    for (; line_ < static_cast<int64_t>(arguments_.size()) && !is_full(); ++line_) {
      items.push_back({line_ + 1, arguments_[line_]});
    }
    return items;
  }
  if (line_ == 0 && isatty(fd_) != 0) {
    std::cerr << "reading texts from the terminal, one per line; end with Ctrl-D\n";
  }
  std::string line;
  while (!is_full()) {
    if (TakeLine(&line)) {
      ++line_;
      if (skips_blank_ && absl::StripAsciiWhitespace(line).empty()) continue;
      items.push_back({line_, std::move(line)});
    } else if (end_ || (!Fill(items.empty() ? -1 : 0) && !end_)) {
      break;  // at the end, TakeLine() has returned the rest after the last line end
    }
  }
  if (!items.empty()) return items;
  if (stopped_) return absl::CancelledError("nobody waits for the rest of the input");
  if (error_ != 0) return CannotBeRead("standard input", error_);
  return items;
}

bool LineInput::TakeLine(std::string* line) {
  const size_t newline = buffer_.find('\n', std::max(begin_, searched_));
  size_t end = newline;
  if (newline == std::string::npos) {
    searched_ = buffer_.size();
    if (!end_ || error_ != 0 || begin_ == buffer_.size()) return false;
    end = buffer_.size();
  }
  line->assign(buffer_, begin_, end - begin_);
  if (!line->empty() && line->back() == '\r') line->pop_back();
  begin_ = newline == std::string::npos ? end : end + 1;
  if (line_ == 0 && absl::StartsWith(*line, kByteOrderMark)) line->erase(0, kByteOrderMark.size());
  return true;
}

bool LineInput::Fill(int timeout_ms) {
  pollfd descriptor = {fd_, POLLIN, 0};
  int ready = 0;
  do {
    if (stopped_) return false;
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

std::string LineInput::Where(const Item& item) const {
  return absl::StrCat(arguments_.empty() ? "line " : "text ", item.line);
}

}  // namespace sru::client
