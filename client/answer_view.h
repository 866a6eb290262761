// An answer as a reader sees it: marked in the sentence that it comes from.
#ifndef SRU_CLIENT_ANSWER_VIEW_H_
#define SRU_CLIENT_ANSWER_VIEW_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace sru::client {

// Part of a text, in bytes; the end is one past the last.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

// The sentence around `answer`, which is a part of `text`, without white space at its ends; several
// if the answer is in several. A sentence ends at a blank line, and after ".", "!", "?" or an
// ellipsis before white space; but not before a lower-case letter, after an initial ("J. Austen")
// or after a title such as "Mr.". Chinese and Japanese ones end at their own full stops.
TextRange SentenceAround(absl::string_view text, TextRange answer);

// That sentence in one line that does nothing to a terminal, with the answer in brackets or, with
// `color`, on a colored ground. Of a long sentence at most `context` bytes on each side of the
// answer are shown, as whole words; "..." stands for the rest.
std::string MarkedSentence(absl::string_view text, TextRange answer, bool color,
                           size_t context = 160);

}  // namespace sru::client

#endif  // SRU_CLIENT_ANSWER_VIEW_H_
