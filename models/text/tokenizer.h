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
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
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

// How a tokenizer treats a word, character or byte that the vocabulary does not have (FORMAT.md,
// "Tokenizers").
enum class UnknownUse {
  kRefuse,
  kSkip,
  kReplace,  // by the vocabulary's symbol for unknown tokens or, without one, by another token
  kDefault   // kReplace by that symbol or, without one, kRefuse
};
constexpr const char* UnknownUseName(UnknownUse use) {
  switch (use) {
    case UnknownUse::kRefuse:
      return "refuse";
    case UnknownUse::kSkip:
      return "skip";
    case UnknownUse::kReplace:
      return "replace";
    case UnknownUse::kDefault:
      break;  // what says nothing
  }
  return "";
}

// The place of a token in the text that was given; ends are one past the last. Bytes and code
// points say the same, unless a token is a part of a code point: that one counts whole then.
struct TextSpan {
  uint32_t begin_byte = 0;
  uint32_t end_byte = 0;
  uint32_t begin_char = 0;  // in code points
  uint32_t end_char = 0;

  std::string_view Of(std::string_view text) const {
    return text.substr(begin_byte, end_byte - begin_byte);
  }
};

// Goes on from what an error says of a text that is refused.
inline constexpr char kUnknownAdvice[] = "set unknown to skip or replace it";

struct EncodeOptions {
  // At most so many tokens are wanted: what comes after these is checked for its UTF-8 only. To
  // learn whether a text has more than n tokens, ask for n + 1.
  size_t max_tokens = std::numeric_limits<size_t>::max();
  UnknownUse unknown = UnknownUse::kDefault;
  bool spans = false;
};

struct EncodedText {
  std::vector<int32_t> ids;
  std::vector<TextSpan> spans;  // of `ids`, if asked for
  int unknown = 0;              // how many the vocabulary does not have, also of those left out
  size_t unknown_end = 0;       // one past the last of `ids` that is unknown; 0: none is

  size_t size() const { return ids.size(); }
  // Leaves the first `tokens` of them, which are all or all but the last.
  void Cut(size_t tokens);
};

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

// Takes the tokens of a text from a tokenizer, in their order. Not thread-safe.
class TokenSink {
 public:
  // `unknown_id` stands for what the vocabulary does not have, `replacement_id` is put in its
  // place; both may be kNotFound. `to` is empty.
  TokenSink(const EncodeOptions& options, int32_t unknown_id, int32_t replacement_id,
            EncodedText* to);

  bool is_full() const { return to_.ids.size() >= most_; }
  size_t room() const { return is_full() ? 0 : most_ - to_.ids.size(); }
  // How many tokens of the text the tokenizer may have to produce. Skipped tokens do not fill the
  // sink, so this is not max_tokens then.
  size_t most_looked_at() const {
    return use_ == UnknownUse::kSkip ? std::numeric_limits<size_t>::max() : most_;
  }
  bool refuses_unknown() const { return use_ == UnknownUse::kRefuse; }
  // Whether it matters where tokens are.
  bool reads_places() const { return spans_ || refuses_unknown(); }

  // Makes room for about so many.
  void Reserve(size_t tokens);
  // The token at the bytes [begin, end) of the text. Requires that the sink is not full.
  void Add(int32_t id, size_t begin, size_t end) {
    if (id == unknown_id_) return AddUnknown(begin, end);
    Append(id, begin, end);
  }
  // Known tokens of a byte each, for which there is room.
  template <typename IdAt>
  void AddBytes(size_t begin, size_t end, const IdAt& id_at) {
    for (size_t i = begin; i < end; ++i) to_.ids.push_back(id_at(i));
    for (size_t i = begin; spans_ && i < end; ++i) {
      to_.spans.push_back({static_cast<uint32_t>(i), static_cast<uint32_t>(i + 1)});
    }
  }
  void AddUnknown(size_t begin, size_t end);
  // The unknown token that was added last extends to the byte `end`. SentencePiece counts
  // neighboring unknown characters as one token.
  void ExtendUnknown(size_t end);
  // Forgets all of them.
  void Clear();

  // The place, in bytes only, of the first unknown token, if unknown tokens are refused. A sink
  // that has refused a token is full.
  const std::optional<TextSpan>& refused() const { return refused_; }

 private:
  void Append(int32_t id, size_t begin, size_t end) {
    to_.ids.push_back(id);
    if (spans_) to_.spans.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }

  size_t most_;
  const int32_t unknown_id_;
  const int32_t replacement_id_;
  const UnknownUse use_;  // not kDefault
  const bool spans_;
  std::optional<TextSpan> refused_;
  EncodedText& to_;
};

// Immutable and thread-safe.
class Tokenizer {
 public:
  static constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();
  static constexpr int32_t kNotFound = -1;

  virtual ~Tokenizer() = default;

  // The tokens of `text`; none when it has none. kInvalidArgument when the tokenizer cannot read
  // the text, or has no token for a part of it.
  absl::StatusOr<EncodedText> Encode(std::string_view text, const EncodeOptions& options) const;
  // Takes ids of text or of Lookup(), as the options say, into `to`, which is empty.
  TokenSink SinkOf(const EncodeOptions& options, EncodedText* to) const {
    const bool replaces = options.unknown == UnknownUse::kReplace;
    return TokenSink(options, unknown_id(), replaces ? ReplacementId() : unknown_id(), to);
  }
  // Their ids alone.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              size_t max_tokens = kNoLimit) const;

  // The id of a token that the caller has split off, as it is. What the vocabulary does not have
  // gets the id of unknown tokens, or kNotFound if there is none.
  virtual int32_t Lookup(std::string_view token) const = 0;

  // The id of unknown tokens, whether from text or from Lookup(); kNotFound if there is none. A
  // symbol for unknown tokens that a caller sends itself has this id, too.
  virtual int32_t unknown_id() const = 0;
  // The id that UnknownUse::kReplace writes for an unknown token: unknown_id(), or else that of
  // U+FFFD, "?" or a space, whichever the vocabulary has first in this order; kNotFound if it has
  // none of them.
  int32_t ReplacementId() const;

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
  // Gives the sink the tokens of `text` until it is full.
  virtual absl::Status AppendTokens(std::string_view text, TokenSink* sink) const = 0;
  // Says that the vocabulary does not have these bytes of the text.
  virtual std::string Missing(std::string_view text, size_t begin, size_t end) const;
};

// The error of text that is not UTF-8; OK if it is.
absl::Status CheckUtf8(std::string_view text);

// The name of a byte: <0xE4>.
std::string ByteName(unsigned char byte);

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_TOKENIZER_H_
