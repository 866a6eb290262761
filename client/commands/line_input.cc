#include "client/commands/line_input.h"

#include <unistd.h>

#include <iostream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "client/read_file.h"

namespace sru::client {

LineInput::LineInput(std::vector<std::string> arguments, bool skips_blank)
    : arguments_(std::move(arguments)),
      skips_blank_(skips_blank),
      reader_(STDIN_FILENO, &stopped_) {}

absl::StatusOr<std::vector<LineInput::Item>> LineInput::Next(int max_items) {
  std::vector<Item> items;
  if (!arguments_.empty()) {
    // An empty argument is a mistake that the server should name.
    while (line_ < static_cast<int64_t>(arguments_.size()) &&
           static_cast<int>(items.size()) < max_items) {
      items.push_back({line_ + 1, arguments_[line_]});
      ++line_;
    }
    return items;
  }
  if (line_ == 0 && isatty(STDIN_FILENO) != 0) {
    std::cerr << "reading texts from the terminal, one per line; end with Ctrl-D\n";
  }
  while (items.empty()) {
    std::vector<std::string> lines = reader_.NextBatch(max_items);
    if (lines.empty()) {
      if (stopped_) return absl::CancelledError("nobody waits for the rest of the input");
      if (reader_.error() != 0) return CannotBeRead("standard input", reader_.error());
      break;
    }
    for (std::string& line : lines) {
      ++line_;
      if (skips_blank_ && absl::StripAsciiWhitespace(line).empty()) continue;
      items.push_back({line_, std::move(line)});
    }
  }
  return items;
}

std::string LineInput::Where(const Item& item) const {
  return absl::StrCat(arguments_.empty() ? "line " : "text ", item.line);
}

}  // namespace sru::client
