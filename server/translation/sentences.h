// Sentences of a text, by ICU's rules (Unicode, UAX #29), but none ends after an abbreviation of
// the language, initials or a number that counts, nor between two ASCII characters without white
// space; and the parts of sentences that are too long for a model.
//
// Pure functions, thread-safe. Time is linear in the bytes, whatever the text says.
#ifndef SRU_SERVER_TRANSLATION_SENTENCES_H_
#define SRU_SERVER_TRANSLATION_SENTENCES_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "models/text/tokenizer.h"

namespace sru::server::translation {

enum class Splitting {
  kNone,        // the whole text is one sentence
  kSentences,   // also at the ends of lines
  kNoNewlines,  // the end of a line is white space
};

struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// The sentences of `text`, valid UTF-8, in their order, without the white space around them. What
// lies between them has no letters. `language`: ICU's code, "en".
std::vector<TextRange> SplitSentences(std::string_view text, const std::string& language,
                                      Splitting splitting);

// Cuts a sentence into parts of at most `max_tokens` tokens each: before a word where it can be,
// otherwise before a character. Appends them to `*parts`, without the white space around them.
// kInvalidArgument: the tokenizer cannot read the text.
absl::Status CutSentence(std::string_view text, TextRange sentence,
                         const models::Tokenizer& tokenizer, size_t max_tokens,
                         std::vector<TextRange>* parts);

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_SENTENCES_H_
