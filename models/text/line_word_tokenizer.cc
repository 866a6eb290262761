#include "models/text/line_word_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "base/status.h"

namespace sru::models {
namespace {

constexpr std::string_view kEndOfLine = "</s>";
constexpr std::string_view kUnknown = "<unk>";
constexpr std::string_view kSeparators = " \t\r\f\v";
constexpr std::string_view kEndsOfWords = " \t\r\f\v\n";

}  // namespace

absl::StatusOr<std::unique_ptr<LineWordTokenizer>> LineWordTokenizer::Create(
    std::unique_ptr<Vocabulary> vocabulary) {
  const int32_t end_of_line = vocabulary->Find(kEndOfLine);
  if (end_of_line == Vocabulary::kNotFound) {
    return absl::InvalidArgumentError("the word </s>, which a newline becomes, is missing");
  }
  const int32_t unknown = vocabulary->Find(kUnknown);
  return std::unique_ptr<LineWordTokenizer>(
      new LineWordTokenizer(std::move(vocabulary), end_of_line, unknown));
}

absl::Status LineWordTokenizer::AppendTokens(std::string_view text, TokenSink* sink) const {
  SRU_RETURN_UNLESS_OK(CheckUtf8(text));
  size_t at = 0;
  while (!sink->is_full()) {
    at = text.find_first_not_of(kSeparators, at);
    if (at == std::string_view::npos) break;
    if (text[at] == '\n') {
      sink->Add(end_of_line_, at, at + 1);
      ++at;
      continue;
    }
    const size_t end = std::min(text.find_first_of(kEndsOfWords, at), text.size());
    sink->Add(Lookup(text.substr(at, end - at)), at, end);
    at = end;
  }
  return absl::OkStatus();
}

void LineWordTokenizer::Append(int32_t id, Position* position, std::string* text) const {
  if (id == end_of_line_) {
    text->push_back('\n');
    position->at_start = true;
    return;
  }
  if (!position->at_start) text->push_back(' ');
  text->append(vocabulary().word(id));
  position->at_start = false;
}

}  // namespace sru::models
