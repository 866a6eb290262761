// SentencePiece (Kudo and Richardson, 2018): pieces of words that a model file describes, by
// unigram or byte pair encoding.
#ifndef SRU_MODELS_TEXT_SENTENCEPIECE_TOKENIZER_H_
#define SRU_MODELS_TEXT_SENTENCEPIECE_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/text/byte_trie.h"
#include "models/text/piece_segmenter.h"
#include "models/text/sentencepiece_model.h"
#include "models/text/sentencepiece_normalizer.h"
#include "models/text/tokenizer.h"

namespace sru::models {

// Ids and texts are those of the library. No symbols of start or end are added. Neighboring unknown
// characters are one token.
class SentencePieceTokenizer final : public Tokenizer, public Detokenizer {
 public:
  // Parses the contents of an spm.model that must have `expected_size` pieces, as `size_key` says.
  // kInvalidArgument with `source`.
  static absl::StatusOr<std::unique_ptr<SentencePieceTokenizer>> Parse(
      std::string_view bytes, int expected_size, const std::string& source,
      const char* size_key = "embedding.vocabulary_size in config.json");

  // The id of a piece by its text, U+2581 for a space.
  int32_t Lookup(std::string_view piece) const override;

  // With byte fallback text never gives it: an unknown character is its bytes.
  int32_t unknown_id() const override { return model_.unknown_id; }
  size_t quick_bytes() const override { return 2 << 10; }
  int size() const override { return static_cast<int>(model_.pieces.size()); }
  std::string TokenName(int32_t id) const override { return model_.pieces[id].text; }
  PieceKind kind(int32_t id) const { return model_.pieces[id].kind; }

  const Detokenizer* detokenizer() const override { return this; }
  // Control symbols have no text. The bytes that unknown characters are made of come one by one.
  void Append(int32_t id, Position* position, std::string* text) const override;

 private:
  explicit SentencePieceTokenizer(SentencePieceModel model);

  // Memory and time follow from `max_tokens`: no more of a text is looked at than so many of the
  // longest pieces take, and some behind them. Unless these would overlap without an end all that
  // way, ids are those of the whole text.
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override;
  // Appends the pieces of normalized text, and returns how many bytes of it these are. `origins` of
  // its bytes may be empty: it does not matter where pieces are then.
  size_t AppendPieces(std::string_view normalized, const SentencePieceNormalizer::Origins& origins,
                      size_t window, TokenSink* sink) const;

  const SentencePieceModel model_;  // what the others point into
  const ByteTrie user_defined_;
  const size_t longest_piece_;  // in bytes
  // Abseil's own view where it is not the standard's (Debian 12): only that one has a hash.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
  std::unique_ptr<const SentencePieceNormalizer> normalizer_;
  std::unique_ptr<const PieceSegmenter> segmenter_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_SENTENCEPIECE_TOKENIZER_H_
