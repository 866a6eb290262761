#include "client/text_table.h"

#include <algorithm>

#include "base/utf8.h"

namespace sru::client {

size_t DisplayWidth(absl::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char byte) { return !ContinuesUtf8(byte); }));
}

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
