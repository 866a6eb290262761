#include "models/text/preprocessing.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/text/lower_case.h"
#include "models/text/white_space.h"

namespace sru::models {
namespace {

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

}  // namespace

Preprocessor::Preprocessor(const PreprocessingConfig& config) : config_(config) {}

absl::Status Preprocessor::Split(std::string_view text, size_t max_words, Sink sink) const {
  SRU_RETURN_UNLESS_OK(CheckUtf8(text));
  switch (config_.type) {
    case TokenizerType::kWhitespace:
      SplitWhitespace(text, max_words, /*lower_case=*/false, sink);
      return absl::OkStatus();
    case TokenizerType::kLowercase:
      SplitWhitespace(text, max_words, /*lower_case=*/true, sink);
      return absl::OkStatus();
    case TokenizerType::kSentenceClassification:
      SplitSentence(text, max_words, sink);
      return absl::OkStatus();
    default:
      return absl::InternalError(
          absl::StrCat("no such preprocessing, ", static_cast<int>(config_.type)));
  }
}

void Preprocessor::SplitWhitespace(std::string_view text, size_t max_words, bool lower_case,
                                   Sink sink) {
  std::string lowered;
  size_t end = 0;
  for (size_t words = 0; words < max_words; ++words) {
    size_t begin = end;
    while (begin < text.size()) {
      const size_t bytes = WhitespaceBytes(text, begin);
      if (bytes == 0) break;
      begin += bytes;
    }
    if (begin == text.size()) return;
    end = begin + 1;
    while (end < text.size() && WhitespaceBytes(text, end) == 0) ++end;
    const std::string_view word = text.substr(begin, end - begin);
    if (!lower_case) {
      sink(word, begin, end);
      continue;
    }
    lowered.clear();
    AppendLowerCase(word, &lowered);
    sink(lowered, begin, end);
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
      sink(word, begin, end);
      return;
    }
    lowered.assign(word);
    absl::AsciiStrToLower(&lowered);  // the cleaning leaves nothing but ASCII
    sink(lowered, begin, end);
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
