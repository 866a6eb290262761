// What SentencePiece does to a text before it looks for pieces.
#ifndef SRU_MODELS_TEXT_SENTENCEPIECE_NORMALIZER_H_
#define SRU_MODELS_TEXT_SENTENCEPIECE_NORMALIZER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "models/text/byte_trie.h"
#include "models/text/sentencepiece_model.h"

namespace sru::models {

// Immutable and thread-safe.
class SentencePieceNormalizer {
 public:
  // `protected_pieces` are left as they are; they and `model` must outlive the object.
  // kInvalidArgument when the compiled rules are damaged, or one puts more than 256 bytes in a
  // text's place.
  static absl::StatusOr<SentencePieceNormalizer> Create(const SentencePieceModel& model,
                                                        const ByteTrie& protected_pieces);

  // `text` must be valid UTF-8, and so is the result. Spaces are U+2581 in it if the model escapes
  // them. Empty when `text` has nothing but spaces and the model removes these. With `most` bytes
  // or a little more it ends: `*is_whole` is false then. `origins`, unless null, gets the bytes of
  // `text` that each byte of the result comes from, [first, second); none for a space that the
  // model puts before a text.
  using Origins = std::vector<std::pair<uint32_t, uint32_t>>;
  std::string Normalize(std::string_view text, size_t most, bool* is_whole,
                        Origins* origins = nullptr) const;

 private:
  SentencePieceNormalizer(const SentencePieceModel& model, const ByteTrie& protected_pieces)
      : model_(&model), protected_pieces_(&protected_pieces) {}

  absl::Status ReadRules(std::string_view compiled);

  // The first characters of `text` as the rules replace them, and how many bytes of `text` these
  // are. `text` is not empty.
  std::pair<std::string_view, size_t> Replace(std::string_view text) const;

  const SentencePieceModel* model_;
  const ByteTrie* protected_pieces_;
  // The compiled rules: a double-array trie (Darts-clone) whose values are offsets into
  // `replacements_`, where a zero byte ends each text.
  std::vector<uint32_t> units_;
  std::string_view replacements_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_SENTENCEPIECE_NORMALIZER_H_
