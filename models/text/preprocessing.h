// Splits text into words in the way that a model was trained with.
//
//   whitespace               runs of characters that are not white space (Unicode, as Python's
//                            str.split())
//   lowercase                the same, each character lower-cased by its simple Unicode mapping
//   sentence_classification  the cleaning of Kim (2014): every character but letters, digits and
//                            ( ) , ! ? ' ` becomes a space; 's 've n't 're 'd 'll are split off in
//                            this order; , ! ( ) ? are set apart; then split on spaces; lower-cased
//                            at the end if asked for
#ifndef SRU_MODELS_TEXT_PREPROCESSING_H_
#define SRU_MODELS_TEXT_PREPROCESSING_H_

#include <cstddef>
#include <limits>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "models/text/tokenizer.h"

namespace sru::models {

// The ways that stand above.
inline constexpr TokenizerType kPreprocessings[] = {
    TokenizerType::kWhitespace, TokenizerType::kLowercase, TokenizerType::kSentenceClassification};

struct PreprocessingConfig {
  TokenizerType type = TokenizerType::kWhitespace;  // one of kPreprocessings
  bool lowercase = false;  // only for kSentenceClassification: lower-case at the end
};

// Immutable and thread-safe.
class Preprocessor {
 public:
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

  explicit Preprocessor(const PreprocessingConfig& config);

  // Takes a word, and the bytes [begin, end) of the text that it is. The view is valid during the
  // call only.
  using Sink = absl::FunctionRef<void(std::string_view word, size_t begin, size_t end)>;

  // Calls `sink` with each word of `text` in order, and stops after `max_words`, so that the words
  // of a huge text that are not wanted cost nothing. kInvalidArgument when `text` is not valid
  // UTF-8, before any call; the message says at which byte.
  absl::Status Split(std::string_view text, size_t max_words, Sink sink) const;

 private:
  static void SplitWhitespace(std::string_view text, size_t max_words, bool lower_case, Sink sink);
  void SplitSentence(std::string_view text, size_t max_words, Sink sink) const;

  const PreprocessingConfig config_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_PREPROCESSING_H_
