#include <algorithm>
#include <string>
#include <utility>

#include "base/status.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

constexpr std::string_view kSeparators = " \t\r\f\v";
constexpr std::string_view kEndsOfWords = " \t\r\f\v\n";

class LineWordTokenizer final : public VocabularyTokenizer, public Detokenizer {
 public:
  LineWordTokenizer(std::unique_ptr<Vocabulary> vocabulary, int32_t end_of_line, int32_t unknown)
      : VocabularyTokenizer(std::move(vocabulary), unknown), end_of_line_(end_of_line) {}

  const Detokenizer* detokenizer() const override { return this; }
  // Words of a line have one space between them.
  void Append(int32_t id, Position* position, std::string* text) const override {
    if (id == end_of_line_) {
      text->push_back('\n');
      position->at_start = true;
      return;
    }
    if (!position->at_start) text->push_back(' ');
    text->append(vocabulary().word(id));
    position->at_start = false;
  }

 private:
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override {
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

  const int32_t end_of_line_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> MakeLineWordTokenizer(
    std::unique_ptr<Vocabulary> vocabulary, const std::string& source) {
  const int32_t end_of_line = vocabulary->Find("</s>");
  const int32_t unknown = vocabulary->Find("<unk>");
  if (end_of_line == Tokenizer::kNotFound) {
    return InvalidArgument(source, ": the word </s>, which a newline becomes, is missing");
  }
  return std::make_unique<LineWordTokenizer>(std::move(vocabulary), end_of_line, unknown);
}

}  // namespace sru::models
