// Text to the token ids of a model, and back. Each implementation is a file of this folder;
// config.json names one of them (FORMAT.md, "Tokenizers").
//
// What all of them promise: the time that a text takes grows linearly with its bytes, whatever it
// says, and an error names the byte (counted from 0) at which the text cannot be read.
#ifndef SRU_MODELS_TEXT_TOKENIZER_H_
#define SRU_MODELS_TEXT_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sru::models {

// How text becomes token ids: each is a tokenizer of this folder.
enum class TokenizerType {
  kWhitespace,
  kLowercase,
  kSentenceClassification,
  kBytes,
  kCharacters,
  kLineWords,
  kUnicodeWords,
  kSentencePiece
};

// Whatever a vocabulary lacks gets the id of the key `oov`: a tokenizer requires that key, takes
// it, or has no use for it.
enum class OovUse { kRequired, kOptional, kNone };

struct TokenizerInfo {
  const char* name = "";  // in config.json
  const char* file = "";  // beside config.json, of which the tokenizer is made; none: ""
  OovUse oov = OovUse::kNone;
  bool has_lowercase = false;  // whether its key `lowercase` says how words are looked up
};

constexpr TokenizerInfo Describe(TokenizerType type) {
  constexpr const char* kWords = "vocab.txt";
  switch (type) {
    case TokenizerType::kWhitespace:
      return {"whitespace", kWords, OovUse::kRequired};
    case TokenizerType::kLowercase:
      return {"lowercase", kWords, OovUse::kRequired};
    case TokenizerType::kSentenceClassification:
      return {"sentence_classification", kWords, OovUse::kRequired, /*has_lowercase=*/true};
    case TokenizerType::kBytes:
      return {"bytes"};
    case TokenizerType::kCharacters:
      return {"characters", kWords, OovUse::kOptional};
    case TokenizerType::kLineWords:
      return {"line_words", kWords};
    case TokenizerType::kUnicodeWords:
      return {"unicode_words", kWords, OovUse::kRequired, /*has_lowercase=*/true};
    case TokenizerType::kSentencePiece:
      return {"sentencepiece", "spm.model"};
  }
  return {};
}
constexpr const char* TokenizerTypeName(TokenizerType type) { return Describe(type).name; }

// Token ids to text. Immutable and thread-safe.
class Detokenizer {
 public:
  // What the text of the next token depends on. It is a value that can be kept with a session and
  // copied with it; a new one is the start of a text.
  struct Position {
    bool at_start = true;  // no space is written before the next token
  };

  virtual ~Detokenizer() = default;

  // Appends the text of one token. Requires 0 <= id < Tokenizer::size(). A token may be part of a
  // UTF-8 character, so only the whole text need be valid UTF-8, and it is valid only if the tokens
  // come from such text: the caller holds back or replaces what is not.
  virtual void Append(int32_t id, Position* position, std::string* text) const = 0;

  // The text of all of them, from the start.
  std::string Decode(const std::vector<int32_t>& ids) const;
};

// Immutable and thread-safe.
class Tokenizer {
 public:
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  static constexpr int32_t kNotFound = -1;

  virtual ~Tokenizer() = default;

  // The ids of the tokens of `text`, at most `max_tokens` of them: what comes after these is
  // checked for its UTF-8 only. To learn whether a text has more than n tokens, ask for n + 1.
  // Empty when the text has no token. kInvalidArgument when the tokenizer cannot read the text.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              size_t max_tokens = kNoLimit) const;

  // The id of a token that the caller has split off, as it is. What the vocabulary does not have
  // gets the id of unknown tokens, or kNotFound if there is none.
  virtual int32_t Lookup(std::string_view token) const = 0;

  // The id of unknown tokens, whether from text or from Lookup(); kNotFound if there is none. A
  // symbol for unknown tokens that a caller sends itself has this id, too.
  virtual int32_t unknown_id() const = 0;

  // Number of ids.
  virtual int size() const = 0;

  // A text of so many bytes is read in a fraction of a millisecond, whatever it says.
  virtual size_t quick_bytes() const { return 64 << 10; }

  // What a user reads for a token, in valid UTF-8: its text, or a name such as <0xE4> for a byte
  // that is no character. Requires 0 <= id < size().
  virtual std::string TokenName(int32_t id) const = 0;

  // Null when text cannot be told from the ids.
  virtual const Detokenizer* detokenizer() const { return nullptr; }

 private:
  // Encode(), with `ids` empty at first.
  virtual absl::Status AppendIds(std::string_view text, size_t max_tokens,
                                 std::vector<int32_t>* ids) const = 0;
};

// The error of text that is not UTF-8; OK if it is.
absl::Status CheckUtf8(std::string_view text);

// The name of a byte: <0xE4>.
std::string ByteName(unsigned char byte);

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_TOKENIZER_H_
