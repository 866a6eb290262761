#include "models/text/sentencepiece_model.h"

#include <cmath>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "models/text/tokenizer.h"

namespace sru::models {
namespace {

constexpr size_t kMaxPieces = size_t{1} << 24;

// One field of a message.
struct Field {
  uint64_t number = 0;
  int wire_type = 0;
  uint64_t value = 0;      // of wire types 0 (varint), 1 and 5 (fixed 64 and 32 bits)
  std::string_view bytes;  // of wire type 2
};

// Reads the fields of a message in protobuf's wire format one after the other.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  // False at the end, and at the first broken field.
  bool Next(Field* field) {
    if (rest_.empty()) return false;
    uint64_t key;
    ok_ = Varint(&key) && Value(static_cast<int>(key & 7), field);
    field->number = key >> 3;
    field->wire_type = static_cast<int>(key & 7);
    return ok_;
  }

  bool ok() const { return ok_; }

 private:
  bool Varint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      *value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Fixed(size_t bytes, uint64_t* value) {
    if (rest_.size() < bytes) return false;
    *value = 0;
    std::memcpy(value, rest_.data(), bytes);  // little-endian, as this machine
    rest_.remove_prefix(bytes);
    return true;
  }

  bool Value(int wire_type, Field* field) {
    switch (wire_type) {
      case 0:
        return Varint(&field->value);
      case 1:
        return Fixed(8, &field->value);
      case 2:
        if (!Varint(&field->value) || field->value > rest_.size()) return false;
        field->bytes = rest_.substr(0, field->value);
        rest_.remove_prefix(field->value);
        return true;
      case 5:
        return Fixed(4, &field->value);
      default:
        return false;
    }
  }

  std::string_view rest_;
  bool ok_ = true;
};

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

constexpr int kVarint = 0;
constexpr int kBytes = 2;
constexpr int kFixed32 = 5;

class Parser {
 public:
  explicit Parser(const std::string& source) : source_(source) {}

  absl::StatusOr<SentencePieceModel> Parse(std::string_view bytes) {
    FieldReader reader(bytes);
    Field field;
    while (reader.Next(&field)) {
      absl::Status status;
      if (field.wire_type != kBytes) continue;
      if (field.number == kPieces) status = AddPiece(field.bytes);
      if (field.number == kTrainerSpec) status = ReadTrainer(field.bytes);
      if (field.number == kNormalizerSpec) status = ReadNormalizer(field.bytes);
      if (field.number == kDenormalizerSpec) status = ReadDenormalizer(field.bytes);
      if (!status.ok()) return status;
    }
    if (!reader.ok() || model_.pieces.empty()) return NotAModel();
    if (absl::Status status = CheckPieces(); !status.ok()) return status;
    return std::move(model_);
  }

 private:
  template <typename... Args>
  absl::Status Error(const Args&... what) const {
    return absl::InvalidArgumentError(absl::StrCat(source_, ": ", what...));
  }

  absl::Status NotAModel() const { return Error("not a SentencePiece model, or a damaged one"); }

  template <typename... Args>
  absl::Status PieceError(size_t id, const Args&... what) const {
    return Error("piece ", id, what...);
  }

  absl::Status AddPiece(std::string_view bytes) {
    const size_t id = model_.pieces.size();
    if (id == kMaxPieces) return Error("expected at most ", kMaxPieces, " pieces, found more");
    SentencePieceModel::Piece& piece = model_.pieces.emplace_back();
    FieldReader reader(bytes);
    Field field;
    while (reader.Next(&field)) {
      if (field.number == kText && field.wire_type == kBytes) {
        piece.text = std::string(field.bytes);
      } else if (field.number == kScore && field.wire_type == kFixed32) {
        const auto bits = static_cast<uint32_t>(field.value);
        std::memcpy(&piece.score, &bits, sizeof(bits));
      } else if (field.number == kType && field.wire_type == kVarint) {
        if (field.value < 1 || field.value > 6) {
          return PieceError(id, ": expected a type from 1 to 6, found ", field.value);
        }
        piece.kind = static_cast<PieceKind>(field.value);
      }
    }
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

  absl::Status ReadTrainer(std::string_view bytes) {
    FieldReader reader(bytes);
    Field field;
    while (reader.Next(&field)) {
      if (field.number == kModelType && field.wire_type == kVarint) {
        if (field.value != 1 && field.value != 2) {
          return Error("expected model_type 1 (unigram) or 2 (bpe), found ", field.value);
        }
        model_.algorithm = static_cast<SentencePieceModel::Algorithm>(field.value);
      } else if (field.number == kWhitespaceAsSuffix && field.wire_type == kVarint) {
        if (field.value != 0) {
          return Error("treat_whitespace_as_suffix: expected false, found true");
        }
      } else if (field.number == kByteFallback && field.wire_type == kVarint) {
        model_.byte_fallback = field.value != 0;
      } else if (field.number == kUnknownSurface && field.wire_type == kBytes) {
        if (FindInvalidUtf8(field.bytes) != field.bytes.size()) {
          return Error("unk_surface is not valid UTF-8");
        }
        model_.unknown_text = std::string(field.bytes);
      }
    }
    return reader.ok() ? absl::OkStatus() : NotAModel();
  }

  absl::Status ReadNormalizer(std::string_view bytes) {
    FieldReader reader(bytes);
    Field field;
    while (reader.Next(&field)) {
      if (field.number == kCharacterMap && field.wire_type == kBytes) {
        model_.character_map = std::string(field.bytes);
      }
      if (field.wire_type != kVarint) continue;
      if (field.number == kAddDummyPrefix) model_.add_dummy_prefix = field.value != 0;
      if (field.number == kRemoveExtraWhitespaces) {
        model_.remove_extra_whitespaces = field.value != 0;
      }
      if (field.number == kEscapeWhitespaces) model_.escape_whitespaces = field.value != 0;
    }
    return reader.ok() ? absl::OkStatus() : NotAModel();
  }

  absl::Status ReadDenormalizer(std::string_view bytes) {
    FieldReader reader(bytes);
    Field field;
    while (reader.Next(&field)) {
      if (field.number == kCharacterMap && field.wire_type == kBytes && !field.bytes.empty()) {
        return Error("denormalizer_spec: expected no rules, found some");
      }
    }
    return reader.ok() ? absl::OkStatus() : NotAModel();
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
  return Parser(source).Parse(bytes);
}

}  // namespace sru::models
