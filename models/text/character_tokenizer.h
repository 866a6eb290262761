// One token per Unicode code point.
#ifndef SRU_MODELS_TEXT_CHARACTER_TOKENIZER_H_
#define SRU_MODELS_TEXT_CHARACTER_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/vocabulary.h"

namespace sru::models {

// The vocabulary has a character per line. Two characters that a line cannot hold have names of two
// letters: \n for a newline, \r for a carriage return. Any other line of more than one character,
// such as <pad>, is a symbol that text never gives.
class CharacterTokenizer final : public VocabularyTokenizer, public Detokenizer {
 public:
  // `vocabulary` must not be null. `oov_id` is the id of a character that it does not have; with
  // kNotFound such a character is an error. Requires kNotFound <= oov_id < vocabulary->size().
  CharacterTokenizer(std::unique_ptr<Vocabulary> vocabulary, int32_t oov_id)
      : VocabularyTokenizer(std::move(vocabulary), oov_id) {}

  // The id of a line of the vocabulary, or of a newline or carriage return.
  int32_t Lookup(std::string_view token) const override;

  const Detokenizer* detokenizer() const override { return this; }
  // A symbol that text never gives is written as the vocabulary has it.
  void Append(int32_t id, Position* position, std::string* text) const override;

 private:
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override;
  std::string Missing(std::string_view text, size_t begin, size_t end) const override;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_CHARACTER_TOKENIZER_H_
