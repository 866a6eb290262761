// How SentencePiece cuts normalized text into pieces: the most probable pieces of a unigram
// language model (Kudo, 2018), or byte pair encoding (Sennrich et al., 2016). Both give what the
// library gives, in float32 as it computes them.
#ifndef SRU_MODELS_TEXT_PIECE_SEGMENTER_H_
#define SRU_MODELS_TEXT_PIECE_SEGMENTER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "models/text/byte_trie.h"
#include "models/text/sentencepiece_model.h"

namespace sru::models {

// Immutable and thread-safe.
class PieceSegmenter {
 public:
  // Takes a piece and its id, which is the model's unknown_id for text that no piece covers.
  // Returns whether to go on.
  using Sink = absl::FunctionRef<bool(std::string_view piece, int32_t id)>;

  virtual ~PieceSegmenter() = default;

  // Calls `sink` with the pieces of `text` in order. `text` must be valid UTF-8. Memory is
  // proportional to `window`: where pieces could overlap over more bytes than that, so that the
  // last of them might change the first, the text is cut.
  virtual void Segment(std::string_view text, size_t window, Sink sink) const = 0;
};

// Both must outlive the segmenter. `user_defined` has the pieces of that kind.
std::unique_ptr<PieceSegmenter> MakeUnigramSegmenter(const SentencePieceModel& model);
std::unique_ptr<PieceSegmenter> MakeBpeSegmenter(const SentencePieceModel& model,
                                                 const ByteTrie& user_defined);

// Whether text can have pieces of this kind; the others come from nowhere but the model.
inline bool IsInText(PieceKind kind) {
  return kind == PieceKind::kNormal || kind == PieceKind::kUserDefined ||
         kind == PieceKind::kUnused;
}

// The pieces of some kinds, with their ids.
ByteTrie TrieOf(const SentencePieceModel& model, bool (*has)(PieceKind));

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_PIECE_SEGMENTER_H_
