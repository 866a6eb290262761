#include "models/preprocessing.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
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
// Bytes rather than characters: every byte above ASCII becomes a space anyway.
enum class ByteKind : uint8_t {
  kWord,         // part of a word
  kContraction,  // the same, but a contraction may start here: a word ends before it then
  kPunctuation,  // a word ends before it, it is a word, and a new one starts after it
  kSpace,        // becomes a space: a word ends before it, a new one starts after it
};

constexpr std::string_view kContractions[] = {"'s", "'ve", "n't", "'re", "'d", "'ll"};

constexpr std::array<ByteKind, 256> MakeByteKinds() {
  std::array<ByteKind, 256> kinds{};
  for (ByteKind& kind : kinds) kind = ByteKind::kSpace;
  for (int c = '0'; c <= '9'; ++c) kinds[c] = ByteKind::kWord;
  for (int c = 'A'; c <= 'Z'; ++c) kinds[c] = ByteKind::kWord;
  for (int c = 'a'; c <= 'z'; ++c) kinds[c] = ByteKind::kWord;
  kinds['`'] = ByteKind::kWord;
  for (const std::string_view contraction : kContractions) {
    kinds[static_cast<unsigned char>(contraction[0])] = ByteKind::kContraction;
  }
  for (const char c : {',', '!', '(', ')', '?'}) {
    kinds[static_cast<unsigned char>(c)] = ByteKind::kPunctuation;
  }
  return kinds;
}

constexpr std::array<ByteKind, 256> kByteKinds = MakeByteKinds();

ByteKind KindAt(std::string_view text, size_t position) {
  return kByteKinds[static_cast<unsigned char>(text[position])];
}

bool IsContraction(std::string_view text, size_t position) {
  return std::any_of(std::begin(kContractions), std::end(kContractions),
                     [&](std::string_view contraction) {
                       return text.substr(position, contraction.size()) == contraction;
                     });
}

// The next match in `text` at or after `position`; false when there is none.
bool Next(const re2::RE2& pattern, std::string_view text, size_t position, size_t* begin,
          size_t* end) {
  const re2::StringPiece piece(text.data(), text.size());
  re2::StringPiece match;
  if (!pattern.Match(piece, position, text.size(), re2::RE2::UNANCHORED, &match, 1)) return false;
  *begin = static_cast<size_t>(match.data() - text.data());
  *end = *begin + match.size();
  return true;
}

}  // namespace

Preprocessor::Preprocessor(const PreprocessingConfig& config)
    : config_(config), word_pattern_(kWordPattern) {}

absl::Status Preprocessor::Split(std::string_view text, size_t max_words, Sink sink) const {
  if (const size_t invalid = FindInvalidUtf8(text); invalid != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("not valid UTF-8 at byte ", invalid));
  }
  if (config_.type == PreprocessingType::kSentenceClassification) {
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
  for (size_t words = 0; words < max_words && Next(word_pattern_, text, end, &begin, &end);
       ++words) {
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
  for (size_t i = 0; i < text.size() && words < max_words; ++i) {
    switch (KindAt(text, i)) {
      case ByteKind::kWord:
        break;
      case ByteKind::kContraction:
        if (!IsContraction(text, i)) break;
        emit(word_begin, i);
        word_begin = i;
        break;
      case ByteKind::kPunctuation:
        emit(word_begin, i);
        emit(i, i + 1);
        word_begin = i + 1;
        break;
      case ByteKind::kSpace:
        emit(word_begin, i);
        word_begin = i + 1;
        break;
    }
  }
  emit(word_begin, text.size());
}

}  // namespace sru::models
