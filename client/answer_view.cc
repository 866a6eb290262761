#include "client/answer_view.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "client/token_view.h"

namespace sru::client {
namespace {

constexpr absl::string_view kStops[] = {".", "!", "?", "\u2026"};
// These need no white space behind them.
constexpr absl::string_view kFullwidthStops[] = {"\u3002", "\uff01", "\uff1f", "\uff61"};
// What may come between the stop and the white space.
constexpr absl::string_view kClosers[] = {"\"",     "'",      ")",      "]",      "}",
                                          "\u201d", "\u2019", "\u00bb", "\u300d", "\u300f"};
constexpr int kMaxClosers = 4;
constexpr absl::string_view kTitles[] = {"Mr",  "Mrs", "Ms",  "Dr",   "Prof", "St",
                                         "Rev", "Gen", "Col", "Capt", "Lt",   "Sgt",
                                         "Hon", "vs",  "No",  "cf",   "ca"};

bool IsSpace(char c) { return absl::ascii_isspace(static_cast<unsigned char>(c)); }

// Removes one of `suffixes` from the end of `text`.
template <size_t kSize>
bool RemoveOne(absl::string_view* text, const absl::string_view (&suffixes)[kSize]) {
  for (const absl::string_view suffix : suffixes) {
    if (!absl::EndsWith(*text, suffix)) continue;
    text->remove_suffix(suffix.size());
    return true;
  }
  return false;
}

// Whether the period behind `text` belongs to its last word: an initial or a title.
bool EndsWithAbbreviation(absl::string_view text) {
  size_t begin = text.size();
  while (begin > 0 && absl::ascii_isalnum(static_cast<unsigned char>(text[begin - 1]))) --begin;
  const absl::string_view word = text.substr(begin);
  // A letter of another alphabet or an accent before it makes it a longer word.
  if (begin > 0 && static_cast<unsigned char>(text[begin - 1]) >= 0x80) return false;
  if (word.size() == 1) return absl::ascii_isupper(static_cast<unsigned char>(word[0]));
  return std::find(std::begin(kTitles), std::end(kTitles), word) != std::end(kTitles);
}

// Whether a sentence begins at `at`, where a word does.
bool BeginsSentence(absl::string_view text, size_t at) {
  absl::string_view before = text.substr(0, at);
  size_t newlines = 0;
  while (!before.empty() && IsSpace(before.back())) {
    newlines += before.back() == '\n' ? 1 : 0;
    before.remove_suffix(1);
  }
  if (before.empty() || newlines > 1) return true;
  const bool spaced = before.size() < at;
  for (int k = 0; k < kMaxClosers && RemoveOne(&before, kClosers); ++k) {
  }
  if (RemoveOne(&before, kFullwidthStops)) return true;
  if (!spaced) return false;
  const bool period = absl::EndsWith(before, ".");
  if (!RemoveOne(&before, kStops)) return false;
  if (at < text.size() && absl::ascii_islower(static_cast<unsigned char>(text[at]))) return false;
  return !period || !EndsWithAbbreviation(before);
}

absl::string_view Part(absl::string_view text, size_t begin, size_t end) {
  return text.substr(begin, end - begin);
}

// One line: white space and control characters of each kind as single spaces.
std::string Line(absl::string_view text) {
  std::string line;
  for (const char c : text) {
    if (!IsSpace(c)) {
      line += c;
    } else if (line.empty() || line.back() != ' ') {
      line += ' ';
    }
  }
  return PrintableToken(line);
}

}  // namespace

TextRange SentenceAround(absl::string_view text, TextRange answer) {
  answer.end = std::min(answer.end, text.size());
  answer.begin = std::min(answer.begin, answer.end);
  TextRange sentence = answer;
  while (sentence.begin > 0 &&
         (ContinuesUtf8(text[sentence.begin]) || IsSpace(text[sentence.begin]) ||
          !BeginsSentence(text, sentence.begin))) {
    --sentence.begin;
  }
  while (sentence.begin < answer.begin && IsSpace(text[sentence.begin])) ++sentence.begin;
  while (sentence.end < text.size() &&
         (ContinuesUtf8(text[sentence.end]) || IsSpace(text[sentence.end]) ||
          !BeginsSentence(text, sentence.end))) {
    ++sentence.end;
  }
  while (sentence.end > answer.end && IsSpace(text[sentence.end - 1])) --sentence.end;
  return sentence;
}

std::string MarkedSentence(absl::string_view text, TextRange answer, bool color, size_t context) {
  TextRange shown = SentenceAround(text, answer);
  answer.end = std::min(answer.end, text.size());
  answer.begin = std::min(answer.begin, answer.end);
  // At a space or, where there is none, between two characters.
  const bool cut_before = answer.begin - shown.begin > context;
  if (cut_before) {
    shown.begin = answer.begin - context;
    while (ContinuesUtf8(text[shown.begin])) ++shown.begin;
    const size_t space = text.substr(0, answer.begin).find(' ', shown.begin);
    if (space != absl::string_view::npos && space + 1 < answer.begin) shown.begin = space;
  }
  const bool cut_behind = shown.end - answer.end > context;
  if (cut_behind) {
    shown.end = answer.end + context;
    while (ContinuesUtf8(text[shown.end])) --shown.end;
    const size_t space = text.rfind(' ', shown.end);
    if (space != absl::string_view::npos && space > answer.end) shown.end = space + 1;
  }
  return absl::StrCat(cut_before ? "..." : "", Line(Part(text, shown.begin, answer.begin)),
                      color ? kPaleGreen : "[", Line(Part(text, answer.begin, answer.end)),
                      color ? kResetColor : "]", Line(Part(text, answer.end, shown.end)),
                      cut_behind ? "..." : "");
}

}  // namespace sru::client
