#include "models/text/character_tokenizer.h"

#include "absl/status/status.h"
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

absl::Status CharacterTokenizer::AppendIds(std::string_view text, size_t max_tokens,
                                           std::vector<int32_t>* ids) const {
  SRU_RETURN_UNLESS_OK(CheckUtf8(text));
  for (size_t at = 0; at < text.size() && ids->size() < max_tokens;) {
    const size_t bytes = CodePointBytes(text[at]);
    const int32_t id = Lookup(text.substr(at, bytes));
    if (id == kNotFound) {
      return absl::InvalidArgumentError(
          absl::StrFormat("character U+%04X at byte %d is not in the model's vocabulary",
                          CodePointAt(text, at), at));
    }
    ids->push_back(id);
    at += bytes;
  }
  return absl::OkStatus();
}

int32_t CharacterTokenizer::Lookup(std::string_view token) const {
  return VocabularyTokenizer::Lookup(LineOf(token));
}

void CharacterTokenizer::Append(int32_t id, Position* position, std::string* text) const {
  text->append(CharacterOf(vocabulary().word(id)));
  position->at_start = false;
}

}  // namespace sru::models
