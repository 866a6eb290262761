#include "models/text/character_tokenizer.h"

#include "absl/strings/str_format.h"
#include "base/status.h"
#include "models/text/code_point.h"

namespace sru::models {
namespace {

// The line that stands for a character.
std::string_view LineOf(std::string_view character) {
  if (character == "\n") return "\\n";
  if (character == "\r") return "\\r";
  return character;
}

std::string_view CharacterOf(std::string_view line) {
  if (line == "\\n") return "\n";
  if (line == "\\r") return "\r";
  return line;
}

}  // namespace

absl::Status CharacterTokenizer::AppendTokens(std::string_view text, TokenSink* sink) const {
  SRU_RETURN_UNLESS_OK(CheckUtf8(text));
  for (size_t at = 0; at < text.size() && !sink->is_full();) {
    const size_t bytes = CodePointBytes(text[at]);
    sink->Add(Lookup(text.substr(at, bytes)), at, at + bytes);
    at += bytes;
  }
  return absl::OkStatus();
}

std::string CharacterTokenizer::Missing(std::string_view text, size_t begin, size_t /*end*/) const {
  return absl::StrFormat("character U+%04X at byte %d is not in the model's vocabulary",
                         CodePointAt(text, begin), begin);
}

int32_t CharacterTokenizer::Lookup(std::string_view token) const {
  return VocabularyTokenizer::Lookup(LineOf(token));
}

void CharacterTokenizer::Append(int32_t id, Position* position, std::string* text) const {
  text->append(CharacterOf(vocabulary().word(id)));
  position->at_start = false;
}

}  // namespace sru::models
