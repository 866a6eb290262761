#include "client/commands/line_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/read_file.h"

namespace sru::client {
namespace {

constexpr char kStandardInput[] = "-";

std::vector<std::string> Sources(std::vector<std::string> arguments) {
  if (arguments.empty()) arguments.emplace_back(kStandardInput);
  return arguments;
}

}  // namespace

LineInput::LineInput(std::vector<std::string> arguments, bool files, bool skips_blank)
    : arguments_(Sources(arguments)),
      files_(files || arguments.empty()),
      skips_blank_(skips_blank) {}

LineInput::~LineInput() { Close(); }

void LineInput::Close() {
  reader_ = nullptr;
  if (fd_ > STDERR_FILENO) close(fd_);
  fd_ = -1;
}

absl::Status LineInput::OpenNext() {
  line_ = 0;
  const std::string& name = arguments_[source_];
  if (name == kStandardInput) {
    fd_ = STDIN_FILENO;
    if (isatty(fd_) != 0) {
      std::cerr << "reading texts from the terminal, one per line; end with Ctrl-D\n";
    }
  } else {
    fd_ = open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) return ReadError(errno);
  }
  reader_ = std::make_unique<LineReader>(fd_, &stopped_);
  return absl::OkStatus();
}

absl::Status LineInput::ReadError(int error) const {
  const std::string& name = source_name(source_);
  return CannotBeRead(name.empty() ? "standard input" : name, error);
}

absl::StatusOr<std::vector<LineInput::Item>> LineInput::Next(int max_items) {
  std::vector<Item> items;
  if (!files_) {
    // An empty argument is a mistake that the server should name.
    while (line_ < static_cast<int64_t>(arguments_.size()) &&
           static_cast<int>(items.size()) < max_items) {
      items.push_back({0, line_ + 1, arguments_[line_]});
      ++line_;
    }
    return items;
  }
  while (items.empty() && source_ < arguments_.size()) {
    if (reader_ == nullptr) {
      SRU_RETURN_UNLESS_OK(OpenNext());
    }
    std::vector<std::string> lines = reader_->NextBatch(max_items);
    if (lines.empty()) {
      if (stopped_) return absl::CancelledError("nobody waits for the rest of the input");
      if (reader_->error() != 0) return ReadError(reader_->error());
      Close();
      ++source_;
    }
    for (std::string& line : lines) {
      ++line_;
      if (skips_blank_ && absl::StripAsciiWhitespace(line).empty()) continue;
      items.push_back({source_, line_, std::move(line)});
    }
  }
  return items;
}

const std::string& LineInput::source_name(size_t source) const {
  static const auto* const kNone = new std::string;
  const bool is_file = files_ && source < arguments_.size() && arguments_[source] != kStandardInput;
  return is_file ? arguments_[source] : *kNone;
}

std::string LineInput::Where(const Item& item) const {
  const std::string& name = source_name(item.source);
  if (!name.empty()) return absl::StrCat(name, ":", item.line);
  return absl::StrCat(files_ ? "line " : "text ", item.line);
}

}  // namespace sru::client
