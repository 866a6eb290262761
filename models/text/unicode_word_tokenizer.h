// Words by Unicode's categories, with their places in the text: what a reader needs to cut answers
// out of it.
#ifndef SRU_MODELS_TEXT_UNICODE_WORD_TOKENIZER_H_
#define SRU_MODELS_TEXT_UNICODE_WORD_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "models/text/vocabulary.h"

namespace sru::models {

// A token is a longest run of code points of the general categories L*, M* and N* (letters, marks,
// numbers), or one other code point that is not white space (white_space.h). The text is not
// normalized. The categories are those of the utf8proc that the program runs with: Unicode 15 in
// Debian 12. A later Unicode only gives a category to code points that had none.
class UnicodeWordTokenizer final : public VocabularyTokenizer {
 public:
  // `vocabulary` must not be null; requires 0 <= oov_id < vocabulary->size(). With `lowercase` a
  // token is looked up in lower case (lower_case.h).
  UnicodeWordTokenizer(std::unique_ptr<Vocabulary> vocabulary, int32_t oov_id, bool lowercase)
      : VocabularyTokenizer(std::move(vocabulary), oov_id), lowercase_(lowercase) {}

  // Calls `sink` with the tokens of `text` in order, at most `max_tokens` of them.
  // kInvalidArgument, before any call, when `text` is not valid UTF-8.
  static absl::Status Split(std::string_view text, size_t max_tokens,
                            absl::FunctionRef<void(const TextSpan&)> sink);

  // The id of a token, in lower case if the tokenizer lower-cases.
  int32_t Lookup(std::string_view token) const override;

 private:
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override;

  const bool lowercase_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_UNICODE_WORD_TOKENIZER_H_
