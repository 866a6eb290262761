// The tokenizers of this folder but SentencePiece's (sentencepiece_tokenizer.h), each in a file of
// its own, and what splits a text into their words. A vocabulary must not be null; an id of unknown
// tokens is in it, or kNotFound where there may be none.
#ifndef SRU_MODELS_TEXT_TOKENIZERS_H_
#define SRU_MODELS_TEXT_TOKENIZERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/text/tokenizer.h"
#include "models/text/vocabulary.h"

namespace sru::models {

// One token per byte. Text may be any bytes; there is no unknown symbol, no start and no end. A
// character of several bytes is skipped or replaced as a whole, if one of them is unknown.
// `vocabulary` has the bytes that the model knows, which must differ; the id of a byte is its
// index.
std::unique_ptr<Tokenizer> MakeByteTokenizer(std::vector<uint8_t> vocabulary);

// One token per Unicode code point. The vocabulary has a character per line. Two characters that a
// line cannot hold have names of two letters: \n for a newline, \r for a carriage return. Any other
// line of more than one character, such as <pad>, is a symbol that text never gives. A character
// that the vocabulary does not have gets `oov_id`; with kNotFound it is an error.
std::unique_ptr<Tokenizer> MakeCharacterTokenizer(std::unique_ptr<Vocabulary> vocabulary,
                                                  int32_t oov_id);

// The words of a word language model. Spaces, tabs, carriage returns, form feeds and vertical tabs
// separate words. Each newline gives </s>, and the other way round. Case is kept. A word that the
// vocabulary does not have is <unk> if it has that, else an error. kInvalidArgument with
// `source` when the vocabulary has no </s>.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeLineWordTokenizer(
    std::unique_ptr<Vocabulary> vocabulary, const std::string& source);

// Words by Unicode's categories, with their places in the text: what a reader needs to cut answers
// out of it. A token is a longest run of code points of the general categories L*, M* and N*
// (letters, marks, numbers), or one other code point that is not white space (code_point.h). The
// text is not normalized. The categories are those of the utf8proc that the program runs with:
// Unicode 15 in Debian 12. A later Unicode only gives a category to code points that had none. With
// `lowercase` a token is looked up in lower case.
std::unique_ptr<Tokenizer> MakeUnicodeWordTokenizer(std::unique_ptr<Vocabulary> vocabulary,
                                                    int32_t oov_id, bool lowercase);
// Calls `sink` with the tokens of `text` in order, at most `max_tokens` of them. kInvalidArgument,
// before any call, when `text` is not valid UTF-8.
absl::Status SplitUnicodeWords(std::string_view text, size_t max_tokens,
                               absl::FunctionRef<void(const TextSpan&)> sink);

// The ways to split text into words that models were trained with:
//   whitespace               runs of characters that are not white space (Unicode, as Python's
//                            str.split())
//   lowercase                the same, each character lower-cased by its simple Unicode mapping
//   sentence_classification  the cleaning of Kim (2014): every character but letters, digits and
//                            ( ) , ! ? ' ` becomes a space; 's 've n't 're 'd 'll are split off in
//                            this order; , ! ( ) ? are set apart; then split on spaces; lower-cased
//                            at the end if asked for
inline constexpr TokenizerType kPreprocessings[] = {
    TokenizerType::kWhitespace, TokenizerType::kLowercase, TokenizerType::kSentenceClassification};

struct PreprocessingConfig {
  TokenizerType type = TokenizerType::kWhitespace;  // one of kPreprocessings
  bool lowercase = false;  // only for kSentenceClassification: lower-case at the end
};

// Words of a vocabulary: preprocessing, then look-up, with `oov_id` for words that it does not
// have.
std::unique_ptr<Tokenizer> MakeWordTokenizer(const PreprocessingConfig& config,
                                             std::unique_ptr<Vocabulary> vocabulary,
                                             int32_t oov_id);
// Calls `sink` with each word of `text` in order, and with the bytes [begin, end) of the text that
// it is; the view is valid during the call only. Stops after `max_words`, so that the words of a
// huge text that are not wanted cost nothing. kInvalidArgument when `text` is not valid UTF-8,
// before any call; the message says at which byte.
absl::Status SplitWords(
    const PreprocessingConfig& config, std::string_view text, size_t max_words,
    absl::FunctionRef<void(std::string_view word, size_t begin, size_t end)> sink);

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_TOKENIZERS_H_
