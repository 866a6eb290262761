#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "models/text/code_point.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

constexpr size_t kBytesPerWord = 4;  // about; a guess that is too high costs a reallocation

// Takes the bytes [begin, end) of a word.
using PlaceSink = absl::FunctionRef<void(size_t begin, size_t end)>;

void SplitAtWhiteSpace(std::string_view text, size_t max_words, PlaceSink sink) {
  size_t begin = 0;  // of the word that `at` is in, or `at` between words
  size_t words = 0;
  for (size_t at = 0; at < text.size() && words < max_words; at += CodePointBytes(text[at])) {
    if (!IsWhiteSpace(CodePointAt(text, at))) continue;
    if (begin < at) {
      sink(begin, at);
      ++words;
    }
    begin = at + CodePointBytes(text[at]);
  }
  if (begin < text.size() && words < max_words) sink(begin, text.size());
}

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

void SplitSentence(std::string_view text, size_t max_words, PlaceSink sink) {
  size_t words = 0;
  const auto emit = [&](size_t begin, size_t end) {
    if (begin == end || words == max_words) return;
    ++words;
    sink(begin, end);
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

class WordTokenizer final : public VocabularyTokenizer {
 public:
  WordTokenizer(const PreprocessingConfig& config, std::unique_ptr<Vocabulary> vocabulary,
                int32_t oov_id)
      : VocabularyTokenizer(std::move(vocabulary), oov_id), config_(config) {}

 private:
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override {
    sink->Reserve(text.size() / kBytesPerWord + 1);
    return SplitWords(config_, text, sink->most_looked_at(),
                      [&](std::string_view word, size_t begin, size_t end) {
                        if (!sink->is_full()) sink->Add(Lookup(word), begin, end);
                      });
  }

  const PreprocessingConfig config_;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeWordTokenizer(const PreprocessingConfig& config,
                                             std::unique_ptr<Vocabulary> vocabulary,
                                             int32_t oov_id) {
  return std::make_unique<WordTokenizer>(config, std::move(vocabulary), oov_id);
}

absl::Status SplitWords(
    const PreprocessingConfig& config, std::string_view text, size_t max_words,
    absl::FunctionRef<void(std::string_view word, size_t begin, size_t end)> sink) {
  SRU_RETURN_UNLESS_OK(CheckUtf8(text));
  const bool cleans = config.type == TokenizerType::kSentenceClassification;
  const bool lowers = cleans ? config.lowercase : config.type == TokenizerType::kLowercase;
  std::string lowered;
  const auto emit = [&](size_t begin, size_t end) {
    std::string_view word = text.substr(begin, end - begin);
    if (lowers) {
      lowered.clear();
      AppendLowerCase(word, &lowered);
      word = lowered;
    }
    sink(word, begin, end);
  };
  if (cleans) {
    SplitSentence(text, max_words, emit);
  } else if (lowers || config.type == TokenizerType::kWhitespace) {
    SplitAtWhiteSpace(text, max_words, emit);
  } else {
    return absl::InternalError(
        absl::StrCat("no such preprocessing, ", static_cast<int>(config.type)));
  }
  return absl::OkStatus();
}

}  // namespace sru::models
