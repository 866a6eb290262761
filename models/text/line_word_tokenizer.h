// The words of a word language model: text is split at ASCII white space, and each newline is a
// token of its own.
#ifndef SRU_MODELS_TEXT_LINE_WORD_TOKENIZER_H_
#define SRU_MODELS_TEXT_LINE_WORD_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "models/text/vocabulary.h"

namespace sru::models {

// Spaces, tabs, carriage returns, form feeds and vertical tabs separate words. A newline gives
// </s>. Case is kept. A word that the vocabulary does not have is <unk> if it has that, else an
// error.
class LineWordTokenizer final : public VocabularyTokenizer, public Detokenizer {
 public:
  // `vocabulary` must not be null. kInvalidArgument when it has no </s>.
  static absl::StatusOr<std::unique_ptr<LineWordTokenizer>> Create(
      std::unique_ptr<Vocabulary> vocabulary);

  const Detokenizer* detokenizer() const override { return this; }
  // Words of a line have one space between them; </s> becomes a newline.
  void Append(int32_t id, Position* position, std::string* text) const override;

 private:
  LineWordTokenizer(std::unique_ptr<Vocabulary> vocabulary, int32_t end_of_line, int32_t unknown)
      : VocabularyTokenizer(std::move(vocabulary), unknown), end_of_line_(end_of_line) {}

  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override;

  const int32_t end_of_line_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_LINE_WORD_TOKENIZER_H_
