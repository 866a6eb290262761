#include "client/text_table.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/utf8.h"

namespace sru::client {
namespace {

// The number of characters, not bytes: close enough to the width on a terminal.
size_t DisplayWidth(absl::string_view text) { return static_cast<size_t>(CountUtf8(text)); }

}  // namespace

std::string OneLine(absl::string_view text, size_t width) {
  std::string line(text);
  for (char& byte : line) {
    const auto value = static_cast<unsigned char>(byte);
    if (value < 0x20 || value == 0x7f) byte = ' ';
  }
  if (DisplayWidth(line) <= width) return line;
  const size_t keep = width < 3 ? 0 : width - 3;
  size_t characters = 0;
  size_t end = 0;
  while (end < line.size() && (characters < keep || ContinuesUtf8(line[end]))) {
    if (!ContinuesUtf8(line[end])) ++characters;
    ++end;
  }
  return line.substr(0, end) + "...";
}

std::string Printable(absl::string_view text, absl::string_view keep) {
  std::string printable;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    while (end < text.size() && ContinuesUtf8(text[end])) ++end;
    const size_t valid = FindInvalidUtf8(std::string_view(text.data() + i, end - i));
    const auto byte = static_cast<uint8_t>(text[i]);
    // U+0080 to U+009F are control characters, too.
    const bool is_control = byte < 0x20 || byte == 0x7f ||
                            (byte == 0xc2 && valid > 1 && static_cast<uint8_t>(text[i + 1]) < 0xa0);
    if (valid > 0 && (!is_control || absl::StrContains(keep, text[i]))) {
      absl::StrAppend(&printable, text.substr(i, valid));
      i += valid;
      continue;
    }
    const size_t escape = absl::string_view("\n\r\t").find(text[i++]);
    if (escape == absl::string_view::npos) {
      absl::StrAppendFormat(&printable, "\\x%02X", byte);
    } else {
      absl::StrAppend(&printable, "\\", absl::string_view("nrt").substr(escape, 1));
    }
  }
  return printable;
}

TextTable::TextTable(std::vector<Column> columns, std::ostream* out)
    : columns_(std::move(columns)), out_(out) {
  for (const Column& column : columns_) widths_.push_back(DisplayWidth(column.name));
}

void TextTable::AddRow(std::vector<std::string> cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    widths_[i] = std::max(widths_[i], DisplayWidth(cells[i]));
  }
  rows_.push_back(std::move(cells));
}

void TextTable::Flush() {
  if (!started_) {
    started_ = true;
    std::vector<std::string> names;
    for (const Column& column : columns_) names.push_back(column.name);
    Print(names);
  }
  for (const auto& row : rows_) Print(row);
  rows_.clear();
  out_->flush();
}

void TextTable::Print(const std::vector<std::string>& cells) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string padding(widths_[i] - std::min(widths_[i], DisplayWidth(cells[i])), ' ');
    const bool last = i + 1 == cells.size();
    if (columns_[i].right_aligned) line += padding;
    line += cells[i];
    if (!last && !columns_[i].right_aligned) line += padding;
    if (!last) line += "  ";
  }
  line.erase(line.find_last_not_of(' ') + 1);
  *out_ << line << '\n';
}

}  // namespace sru::client
