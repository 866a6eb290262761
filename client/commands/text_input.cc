#include "client/commands/text_input.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/client.h"
#include "client/names.h"

namespace sru::client {

void InputFlags::AddTo(FlagSet* flags, bool can_truncate) {
  flags->Add("model", &model, "name of the model; may be left out when the server has one");
  flags->Add("version", &version, "version of the model; 0 = the latest");
  if (can_truncate) {
    flags->Add("truncate", &truncate, "cut texts that are too long instead of refusing them");
  }
  flags->Add("tokens", &tokens, "the words are split by spaces already: look them up as they are");
  flags->Add("priority", &priority, "low, normal or high");
  flags->Add("batch", &batch, "texts per call");
}

void InputFlags::AddSkipEmpty(FlagSet* flags) {
  flags->Add("skip_empty", &skip_empty,
             "answer a text without tokens with nothing instead of refusing it; blank lines then "
             "are such texts, and each has its answer in its place");
}

absl::Status InputFlags::Check(v1::Priority* parsed_priority) const {
  absl::Status status = CheckAtLeast("batch", batch, 1);
  status.Update(CheckNotNegative("version", version));
  status.Update(ParsePriority(priority, parsed_priority));
  return status;
}

TextInput::TextInput(std::vector<std::string> texts, bool keep_blank)
    : texts_(std::move(texts)), keep_blank_(keep_blank), reader_(0) {
  from_stdin_ = texts_.empty();
  if (from_stdin_ && isatty(STDIN_FILENO) != 0) {
    std::cerr << "reading texts from the terminal, one per line; end with Ctrl-D\n";
  }
}

std::vector<TextInput::Item> TextInput::Next(int max_items) {
  std::vector<Item> items;
  while (items.empty()) {
    std::vector<std::string> lines;
    if (from_stdin_) {
      lines = reader_.NextBatch(max_items);
    } else {
      const size_t end = std::min(texts_.size(), next_ + max_items);
      lines.assign(texts_.begin() + next_, texts_.begin() + end);
      next_ = end;
    }
    if (lines.empty()) break;
    for (std::string& line : lines) {
      ++line_;
      // An empty argument is a mistake that the server should name; a blank line is not.
      if (from_stdin_ && !keep_blank_ && absl::StripAsciiWhitespace(line).empty()) continue;
      items.push_back({line_, std::move(line)});
    }
  }
  return items;
}

v1::Sequence MakeSequence(const std::string& text, bool tokens) {
  if (!tokens) return TextSequence(text);
  return TokensSequence(
      std::vector<std::string>(absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty())));
}

}  // namespace sru::client
