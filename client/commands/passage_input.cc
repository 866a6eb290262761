#include "client/commands/passage_input.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "client/text_table.h"

namespace sru::client {
namespace {

constexpr int kLinesAtATime = 1000;

bool IsBlank(absl::string_view text) { return absl::StripAsciiWhitespace(text).empty(); }

}  // namespace

PassageInput::PassageInput(std::vector<std::string> files, bool paragraphs)
    : input_(std::move(files), /*files=*/true, LineInput::Lines::kWithEnds),
      paragraphs_(paragraphs) {}

absl::StatusOr<std::optional<LineInput::Item>> PassageInput::NextLine() {
  if (next_line_ == lines_.size()) {
    SRU_ASSIGN_OR_RETURN(lines_, input_.Next(kLinesAtATime));
    next_line_ = 0;
    if (lines_.empty()) return std::nullopt;
  }
  return std::move(lines_[next_line_++]);
}

void PassageInput::EndFilesBefore(size_t source) {
  for (; source_ < source; ++source_) {
    if (passages_ == 0) {
      const std::string& name = input_.source_name(source_);
      empty_files_.push_back(name.empty() ? "standard input" : name);
    }
    passages_ = 0;
    byte_ = 0;
    character_ = 0;
  }
}

absl::StatusOr<std::optional<PassageInput::Passage>> PassageInput::NextPassage() {
  Passage passage;
  for (;;) {
    absl::StatusOr<std::optional<LineInput::Item>> next = NextLine();
    if (!next.ok()) {
      // The next call gets the error; what came before has ended.
      if (IsBlank(passage.text)) return next.status();
      passage.number = ++passages_;
      return passage;
    }
    const bool another_file = next->has_value() && (*next)->source != source_;
    const bool ends = !next->has_value() || another_file || (paragraphs_ && IsBlank((*next)->text));
    if (ends && !IsBlank(passage.text)) {
      passage.number = ++passages_;
      // The line that ends it is read again.
      if (next->has_value()) lines_[--next_line_] = **std::move(next);
      return passage;
    }
    if (!next->has_value()) {
      EndFilesBefore(input_.num_sources());
      return std::nullopt;
    }
    if (ends) passage.text.clear();
    EndFilesBefore((*next)->source);
    if (passage.text.empty()) {
      passage.source = source_;
      passage.line = (*next)->line;
      passage.byte = byte_;
      passage.character = character_;
    }
    const std::string& line = (*next)->text;
    byte_ += static_cast<int64_t>(line.size());
    character_ += static_cast<int64_t>(DisplayWidth(line));
    if (!(paragraphs_ && IsBlank(line))) passage.text += line;
  }
}

absl::StatusOr<std::vector<PassageInput::Passage>> PassageInput::Next(int max_passages,
                                                                      size_t max_bytes) {
  std::vector<Passage> passages;
  size_t bytes = 0;
  while (static_cast<int>(passages.size()) < max_passages && bytes < max_bytes) {
    absl::StatusOr<std::optional<Passage>> passage = NextPassage();
    if (!passage.ok() && passages.empty()) return passage.status();
    if (!passage.ok() || !passage->has_value()) break;
    bytes += (*passage)->text.size();
    passages.push_back(**std::move(passage));
  }
  return passages;
}

int64_t PassageInput::Line(const Passage& passage, size_t offset) {
  const size_t end = std::min(offset, passage.text.size());
  return passage.line + std::count(passage.text.begin(),
                                   passage.text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
}

std::string PassageInput::Where(const Passage& passage, size_t offset) const {
  const std::string& name = file(passage.source);
  const int64_t line = Line(passage, offset);
  return name.empty() ? absl::StrCat("line ", line) : absl::StrCat(name, ":", line);
}

}  // namespace sru::client
