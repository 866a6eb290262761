#include "models/text/sentencepiece_model.h"

#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/wire_reader.h"
#include "models/text/tokenizer.h"

namespace sru::models {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 24;

// Field numbers of sentencepiece_model.proto.
enum ModelField { kPieces = 1, kTrainerSpec = 2, kNormalizerSpec = 3, kDenormalizerSpec = 5 };
enum PieceField { kText = 1, kScore = 2, kType = 3 };
enum TrainerField {
  kModelType = 3,
  kWhitespaceAsSuffix = 24,
  kByteFallback = 35,
  kUnknownSurface = 44
};
enum NormalizerField {
  kCharacterMap = 2,
  kAddDummyPrefix = 3,
  kRemoveExtraWhitespaces = 4,
  kEscapeWhitespaces = 5
};

class Parser {
 public:
  explicit Parser(const std::string& source) : source_(source) {}

  absl::StatusOr<SentencePieceModel> Parse(absl::string_view bytes) {
    absl::Status status;
    WireReader reader(bytes);
    while (status.ok() && reader.Next()) {
      switch (reader.tag()) {
        case WireTag(kPieces, kWireBytes):
          status = AddPiece(reader.Bytes());
          break;
        case WireTag(kTrainerSpec, kWireBytes):
          status = ReadTrainer(reader.Bytes());
          break;
        case WireTag(kNormalizerSpec, kWireBytes):
          status = ReadNormalizer(reader.Bytes());
          break;
        case WireTag(kDenormalizerSpec, kWireBytes):
          status = ReadDenormalizer(reader.Bytes());
          break;
        default:
          reader.Skip();
      }
    }
    if (!status.ok()) return reader.ok() ? status : NotAModel();
    if (!reader.ok() || model_.pieces.empty()) return NotAModel();
    status = CheckPieces();
    if (!status.ok()) return status;
    return std::move(model_);
  }

 private:
  template <typename... Args>
  absl::Status Error(const Args&... what) const {
    return InvalidArgument(source_, ": ", what...);
  }

  absl::Status NotAModel() const { return Error("not a SentencePiece model, or a damaged one"); }

  template <typename... Args>
  absl::Status PieceError(size_t id, const Args&... what) const {
    return Error("piece ", id, what...);
  }

  absl::Status AddPiece(absl::string_view bytes) {
    const size_t id = model_.pieces.size();
    if (id == kMaxPieces) return Error("expected at most ", kMaxPieces, " pieces, found more");
    SentencePieceModel::Piece& piece = model_.pieces.emplace_back();
    WireReader reader(bytes);
    uint64_t type = static_cast<uint64_t>(piece.kind);
    while (type >= 1 && type <= 6 && reader.Next()) {
      switch (reader.tag()) {
        case WireTag(kText, kWireBytes):
          piece.text = std::string(reader.Bytes());
          break;
        case WireTag(kScore, kWireFixed32):
          piece.score = reader.Float();
          break;
        case WireTag(kType, kWireVarint):
          type = reader.Varint();
          break;
        default:
          reader.Skip();
      }
    }
    if (reader.ok() && (type < 1 || type > 6)) {
      return PieceError(id, ": expected a type from 1 to 6, found ", type);
    }
    piece.kind = static_cast<PieceKind>(type);
    if (!reader.ok()) return NotAModel();
    if (piece.text.empty()) return PieceError(id, " is empty");
    if (piece.text.size() > kMaxPieceBytes) {
      return PieceError(id, ": expected at most ", kMaxPieceBytes, " bytes, found ",
                        piece.text.size());
    }
    if (FindInvalidUtf8(piece.text) != piece.text.size()) {
      return PieceError(id, " is not valid UTF-8");
    }
    if (!std::isfinite(piece.score)) {
      return PieceError(id, ": expected a finite score, found ", piece.score);
    }
    return absl::OkStatus();
  }

  absl::Status ReadTrainer(absl::string_view bytes) {
    WireReader reader(bytes);
    absl::Status status;
    while (status.ok() && reader.Next()) {
      switch (reader.tag()) {
        case WireTag(kModelType, kWireVarint): {
          const uint64_t type = reader.Varint();
          if (type != 1 && type != 2) {
            status = Error("expected model_type 1 (unigram) or 2 (bpe), found ", type);
          }
          model_.algorithm = static_cast<SentencePieceModel::Algorithm>(type);
          break;
        }
        case WireTag(kWhitespaceAsSuffix, kWireVarint):
          if (reader.Varint() != 0) {
            status = Error("treat_whitespace_as_suffix: expected false, found true");
          }
          break;
        case WireTag(kByteFallback, kWireVarint):
          model_.byte_fallback = reader.Varint() != 0;
          break;
        case WireTag(kUnknownSurface, kWireBytes):
          model_.unknown_text = std::string(reader.Bytes());
          if (FindInvalidUtf8(model_.unknown_text) != model_.unknown_text.size()) {
            status = Error("unk_surface is not valid UTF-8");
          } else if (model_.unknown_text.size() > kMaxPieceBytes) {
            status = Error("unk_surface: expected at most ", kMaxPieceBytes, " bytes, found ",
                           model_.unknown_text.size());
          }
          break;
        default:
          reader.Skip();
      }
    }
    return reader.ok() ? status : NotAModel();
  }

  absl::Status ReadNormalizer(absl::string_view bytes) {
    WireReader reader(bytes);
    while (reader.Next()) {
      switch (reader.tag()) {
        case WireTag(kCharacterMap, kWireBytes):
          model_.character_map = std::string(reader.Bytes());
          break;
        case WireTag(kAddDummyPrefix, kWireVarint):
          model_.add_dummy_prefix = reader.Varint() != 0;
          break;
        case WireTag(kRemoveExtraWhitespaces, kWireVarint):
          model_.remove_extra_whitespaces = reader.Varint() != 0;
          break;
        case WireTag(kEscapeWhitespaces, kWireVarint):
          model_.escape_whitespaces = reader.Varint() != 0;
          break;
        default:
          reader.Skip();
      }
    }
    return reader.ok() ? absl::OkStatus() : NotAModel();
  }

  absl::Status ReadDenormalizer(absl::string_view bytes) {
    WireReader reader(bytes);
    bool has_rules = false;
    while (!has_rules && reader.Next()) {
      if (reader.tag() == WireTag(kCharacterMap, kWireBytes)) {
        has_rules = !reader.Bytes().empty();
      } else {
        reader.Skip();
      }
    }
    if (!reader.ok()) return NotAModel();
    return has_rules ? Error("denormalizer_spec: expected no rules, found some") : absl::OkStatus();
  }

  absl::Status CheckPieces() {
    absl::flat_hash_set<absl::string_view> seen;
    seen.reserve(model_.pieces.size());
    std::vector<int32_t> byte_ids(256, -1);
    for (size_t id = 0; id < model_.pieces.size(); ++id) {
      const SentencePieceModel::Piece& piece = model_.pieces[id];
      if (!seen.insert(piece.text).second) return PieceError(id, " repeats another");
      if (piece.kind == PieceKind::kUnknown) {
        if (model_.unknown_id >= 0) {
          return Error("expected one unknown piece, found ", model_.unknown_id, " and ", id);
        }
        model_.unknown_id = static_cast<int32_t>(id);
      }
      if (piece.kind == PieceKind::kByte) {
        int byte = 0;
        while (byte < 256 && ByteName(static_cast<unsigned char>(byte)) != piece.text) ++byte;
        if (byte == 256 || !model_.byte_fallback) {
          return PieceError(id, " is a byte: expected byte_fallback and a name such as <0xE4>");
        }
        byte_ids[byte] = static_cast<int32_t>(id);
      }
    }
    if (model_.unknown_id < 0) return Error("expected an unknown piece, found none");
    if (!model_.byte_fallback) return absl::OkStatus();
    for (int byte = 0; byte < 256; ++byte) {
      if (byte_ids[byte] < 0) {
        return Error("byte_fallback: expected a piece for each byte, found none for ",
                     ByteName(static_cast<unsigned char>(byte)));
      }
    }
    model_.byte_ids = std::move(byte_ids);
    return absl::OkStatus();
  }

  const std::string& source_;
  SentencePieceModel model_;
};

}  // namespace

absl::StatusOr<SentencePieceModel> SentencePieceModel::Parse(std::string_view bytes,
                                                             const std::string& source) {
  return Parser(source).Parse({bytes.data(), bytes.size()});
}

}  // namespace sru::models
