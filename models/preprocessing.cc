#include "models/preprocessing.h"

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "models/utf8.h"

namespace sru::models {
namespace {

// A word: a run of characters that are not white space for Python's str.isspace().
constexpr char kWordPattern[] =
    "[^\\x{09}-\\x{0d}\\x{1c}-\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}"
    "\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}]+";

// The places where a sentence_classification text is cut. What the definition does by one
// replacement after the other comes to one scan, since no two of its patterns can overlap and no
// space that one puts in can make or break a match of another: every contraction but n't starts
// with an apostrophe that a letter other than t follows, and n't cannot overlap those or itself.
//   contraction   a word ends before it and a new one starts with it
//   punctuation   a word ends before it, it is a word, and a new one starts after it
//   the rest      becomes spaces: a word ends before it, a new one starts after it
constexpr char kCutPattern[] = "'s|'ve|n't|'re|'d|'ll|[,!()?]|[^A-Za-z0-9(),!?'`]+";

re2::RE2::Options PatternOptions(bool latin1) {
  re2::RE2::Options options;
  // Bytes rather than characters: every byte above ASCII becomes a space anyway.
  if (latin1) options.set_encoding(re2::RE2::Options::EncodingLatin1);
  return options;
}

bool IsSentence(const PreprocessingConfig& config) {
  return config.type == PreprocessingType::kSentenceClassification;
}

re2::StringPiece ToPiece(std::string_view text) { return {text.data(), text.size()}; }

// The next match in `text` at or after `position`; false when there is none.
bool Next(const re2::RE2& pattern, std::string_view text, size_t position, size_t* begin,
          size_t* end) {
  re2::StringPiece match;
  if (!pattern.Match(ToPiece(text), position, text.size(), re2::RE2::UNANCHORED, &match, 1)) {
    return false;
  }
  *begin = static_cast<size_t>(match.data() - text.data());
  *end = *begin + match.size();
  return true;
}

}  // namespace

Preprocessor::Preprocessor(const PreprocessingConfig& config)
    : config_(config),
      pattern_(IsSentence(config) ? kCutPattern : kWordPattern,
               PatternOptions(/*latin1=*/IsSentence(config))) {}

absl::Status Preprocessor::Split(std::string_view text, size_t max_words, Sink sink) const {
  if (const size_t invalid = FindInvalidUtf8(text); invalid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("not valid UTF-8 at byte ", invalid));
  }
  if (IsSentence(config_)) {
    SplitSentence(text, max_words, sink);
  } else {
    SplitWhitespace(text, max_words, sink);
  }
  return absl::OkStatus();
}

void Preprocessor::SplitWhitespace(std::string_view text, size_t max_words, Sink sink) const {
  const bool lower_case = config_.type == PreprocessingType::kLowercase;
  std::string lowered;
  size_t begin = 0;
  size_t end = 0;
  for (size_t words = 0; words < max_words && Next(pattern_, text, end, &begin, &end); ++words) {
    const std::string_view word = text.substr(begin, end - begin);
    if (!lower_case) {
      sink(word);
      continue;
    }
    lowered.clear();
    AppendLowerCase(word, &lowered);
    sink(lowered);
  }
}

void Preprocessor::SplitSentence(std::string_view text, size_t max_words, Sink sink) const {
  std::string lowered;
  size_t words = 0;
  const auto emit = [&](size_t begin, size_t end) {
    if (begin == end || words == max_words) return;
    ++words;
    const std::string_view word = text.substr(begin, end - begin);
    if (!config_.lowercase) {
      sink(word);
      return;
    }
    lowered.assign(word);
    absl::AsciiStrToLower(&lowered);  // the cleaning leaves nothing but ASCII
    sink(lowered);
  };

  size_t word_begin = 0;
  size_t cut_begin = 0;
  size_t cut_end = 0;
  while (words < max_words && Next(pattern_, text, cut_end, &cut_begin, &cut_end)) {
    emit(word_begin, cut_begin);
    switch (text[cut_begin]) {
      case '\'':
      case 'n':
        word_begin = cut_begin;
        break;
      case ',':
      case '!':
      case '(':
      case ')':
      case '?':
        emit(cut_begin, cut_end);
        word_begin = cut_end;
        break;
      default:
        word_begin = cut_end;
    }
  }
  if (words < max_words) emit(word_begin, text.size());
}

}  // namespace sru::models
