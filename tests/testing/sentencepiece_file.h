// SentencePiece models that tests make: the bytes of an spm.model.
#ifndef SRU_TESTS_TESTING_SENTENCEPIECE_FILE_H_
#define SRU_TESTS_TESTING_SENTENCEPIECE_FILE_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace sru::testing {

// A message in protobuf's wire format, written field by field.
class WireMessage {
 public:
  WireMessage& Varint(int field, uint64_t value) {
    Raw(static_cast<uint64_t>(field) << 3);
    Raw(value);
    return *this;
  }
  WireMessage& Float(int field, float value) {
    Raw(static_cast<uint64_t>(field) << 3 | 5);
    char bytes[sizeof(value)];
    std::memcpy(bytes, &value, sizeof(value));
    bytes_.append(bytes, sizeof(value));
    return *this;
  }
  WireMessage& Bytes(int field, const std::string& value) {
    Raw(static_cast<uint64_t>(field) << 3 | 2);
    Raw(value.size());
    bytes_ += value;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void Raw(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

struct SentencePieceFile {
  struct Piece {
    std::string text;
    float score = 0.0f;
    int kind = 1;  // 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte
  };

  std::vector<Piece> pieces;
  int algorithm = 1;  // 1 unigram, 2 bpe
  bool byte_fallback = false;
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  std::string character_map;

  std::string bytes() const {
    WireMessage model;
    for (const Piece& piece : pieces) {
      WireMessage message;
      message.Bytes(1, piece.text).Float(2, piece.score).Varint(3, piece.kind);
      model.Bytes(1, message.bytes());
    }
    WireMessage trainer;
    trainer.Varint(3, algorithm).Varint(35, byte_fallback);
    WireMessage normalizer;
    normalizer.Bytes(2, character_map)
        .Varint(3, add_dummy_prefix)
        .Varint(4, remove_extra_whitespaces);
    return model.Bytes(2, trainer.bytes()).Bytes(3, normalizer.bytes()).bytes();
  }
};

// Ten pieces: unknown, start, end, the letters a, b, c, a space, and three longer ones.
inline SentencePieceFile SmallSentencePieceFile() {
  SentencePieceFile file;
  file.pieces = {{"<unk>", 0.0f, 2}, {"<s>", 0.0f, 3}, {"</s>", 0.0f, 3}, {"a", -3.0f},
                 {"b", -3.5f},       {"c", -4.0f},     {"\u2581", -2.0f}, {"ab", -4.0f},
                 {"\u2581a", -2.5f}, {"abc", -5.0f}};
  return file;
}

}  // namespace sru::testing

#endif  // SRU_TESTS_TESTING_SENTENCEPIECE_FILE_H_
