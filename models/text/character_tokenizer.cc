#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "models/text/code_point.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

class CharacterTokenizer final : public VocabularyTokenizer, public Detokenizer {
 public:
  using VocabularyTokenizer::VocabularyTokenizer;

  // The id of a line of the vocabulary, or of a newline or carriage return.
  int32_t Lookup(std::string_view token) const override {
    if (token == "\n") return VocabularyTokenizer::Lookup("\\n");
    return VocabularyTokenizer::Lookup(token == "\r" ? "\\r" : token);
  }

  const Detokenizer* detokenizer() const override { return this; }
  // A symbol that text never gives is written as the vocabulary has it.
  void Append(int32_t id, Position* position, std::string* text) const override {
    const std::string_view line = vocabulary().word(id);
    text->append(line == "\\n" ? "\n" : line == "\\r" ? "\r" : line);
    position->at_start = false;
  }

 private:
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override {
    SRU_RETURN_UNLESS_OK(CheckUtf8(text));
    for (size_t at = 0; at < text.size() && !sink->is_full();) {
      const size_t bytes = CodePointBytes(text[at]);
      sink->Add(Lookup(text.substr(at, bytes)), at, at + bytes);
      at += bytes;
    }
    return absl::OkStatus();
  }

  std::string Missing(std::string_view text, size_t begin, size_t /*end*/) const override {
    return absl::StrFormat("character U+%04X at byte %d is not in the model's vocabulary",
                           CodePointAt(text, begin), begin);
  }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeCharacterTokenizer(std::unique_ptr<Vocabulary> vocabulary,
                                                  int32_t oov_id) {
  return std::make_unique<CharacterTokenizer>(std::move(vocabulary), oov_id);
}

}  // namespace sru::models
