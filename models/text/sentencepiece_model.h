// The contents of a SentencePiece model file (spm.model): a ModelProto in protobuf's wire format,
// as far as encoding and decoding need it. Read here rather than with the library, see
// docs/decisions/0012-tokenizers.md.
#ifndef SRU_MODELS_TEXT_SENTENCEPIECE_MODEL_H_
#define SRU_MODELS_TEXT_SENTENCEPIECE_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace sru::models {

// The space of a piece, U+2581.
inline constexpr std::string_view kPieceSpace = "\xe2\x96\x81";

// What keeps the work for each byte of a text bounded.
inline constexpr size_t kMaxPieceBytes = 1024;

// The values are the file's.
enum class PieceKind {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6
};

struct SentencePieceModel {
  enum class Algorithm { kUnigram = 1, kBpe = 2 };  // the values are the file's

  struct Piece {
    std::string text;
    float score = 0.0f;
    PieceKind kind = PieceKind::kNormal;
  };

  Algorithm algorithm = Algorithm::kUnigram;
  std::vector<Piece> pieces;  // by id
  int32_t unknown_id = -1;    // the only piece of its kind
  bool byte_fallback = false;
  std::vector<int32_t> byte_ids;  // by byte; empty without byte_fallback
  std::string unknown_text = " \xe2\x81\x87 ";
  // Normalization.
  std::string character_map;  // compiled rules; empty: characters stay as they are
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  // kInvalidArgument ("<source>: ...") when the bytes are not a model or one that cannot be used:
  // only the algorithms unigram and BPE are known, and options that change the text after decoding
  // are not.
  static absl::StatusOr<SentencePieceModel> Parse(std::string_view bytes,
                                                  const std::string& source);
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_SENTENCEPIECE_MODEL_H_
