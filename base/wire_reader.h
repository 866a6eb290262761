// WireReader: reads the fields of a protobuf message in the order of its bytes, without building a
// message.
//
//   WireReader reader(bytes);
//   while (reader.Next()) {
//     switch (reader.tag()) {
//       case WireTag(1, kWireBytes):
//         name = reader.Bytes();
//         break;
//       default:
//         reader.Skip();
//     }
//   }
//   if (!reader.ok()) ...
//
// It accepts every message that protobuf's parser accepts: a tag takes at most five bytes and keeps
// its lower 32 bits, a varint takes at most ten.
//
// Not thread-safe. What it returns points into the bytes.
#ifndef SRU_BASE_WIRE_READER_H_
#define SRU_BASE_WIRE_READER_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/string_view.h"

namespace sru {

enum WireKind : uint32_t {
  kWireVarint = 0,
  kWireFixed64 = 1,
  kWireBytes = 2,
  kWireGroup = 3,
  kWireEndGroup = 4,
  kWireFixed32 = 5
};

constexpr uint32_t WireTag(int field, WireKind kind) {
  return static_cast<uint32_t>(field) << 3 | kind;
}

// The pieces of a message that does not lie in one piece.
class WirePieces {
 public:
  virtual ~WirePieces() = default;
  // The next piece, valid until the next call. Empty: there is none.
  virtual absl::string_view Next() = 0;
};

class WireReader {
 public:
  explicit WireReader(absl::string_view bytes)
      : next_(bytes.data()), in_piece_(bytes.size()), left_(bytes.size()) {}
  // A message of `size` bytes in pieces: what needs its bytes in one piece (Take and its callers)
  // then only accepts values that do not cross a border.
  WireReader(WirePieces* pieces, size_t size) : pieces_(pieces), left_(size) {}

  // Goes to the next field. False at the end, and as soon as the bytes are no message.
  bool Next() {
    if (!ok_ || left_ == 0) return false;
    const uint64_t tag = Varint();
    tag_ = static_cast<uint32_t>(tag);
    if (tag >> 35 != 0 || tag_ >> 3 == 0) ok_ = false;
    return ok_;
  }
  uint32_t tag() const { return tag_; }
  WireKind kind() const { return static_cast<WireKind>(tag_ & 7); }
  int field() const { return static_cast<int>(tag_ >> 3); }

  // The value of the field, which must be of that kind. Empty or 0 once something is wrong.
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && left_ > 0; shift += 7) {
      if (in_piece_ == 0 && !NextPiece()) return 0;
      const auto byte = static_cast<uint8_t>(*next_);
      Advance(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    ok_ = false;
    return 0;
  }
  absl::string_view Bytes() { return Take(Varint()); }
  absl::string_view Fixed32() { return Take(4); }
  float Float() { return Number<float>(); }
  double Double() { return Number<double>(); }

  // The next bytes, whatever they mean.
  absl::string_view Take(uint64_t bytes) {
    if (!ok_ || bytes > left_ || (bytes > in_piece_ && pieces_ != nullptr)) {
      ok_ = false;
      return {};
    }
    const absl::string_view taken(next_, bytes);
    Advance(bytes);
    return taken;
  }
  // Passes over the next bytes, which are appended to `*copy` if it is not null.
  void Pass(uint64_t bytes, std::string* copy = nullptr) {
    if (bytes > left_) ok_ = false;
    while (ok_ && bytes > 0) {
      if (in_piece_ == 0 && !NextPiece()) return;
      const size_t some = std::min<uint64_t>(bytes, in_piece_);
      if (copy != nullptr) copy->append(next_, some);
      Advance(some);
      bytes -= some;
    }
  }

  // Makes the message that the field holds all that is read, until Leave() is called with what
  // Enter() returned.
  size_t Enter() {
    const uint64_t size = Varint();
    if (size > left_) ok_ = false;
    if (!ok_) return 0;
    const size_t outer = left_ - size;
    left_ = size;
    return outer;
  }
  // Once Next() is false.
  void Leave(size_t outer) { left_ += outer; }

  // Passes over the value of the field, of any kind.
  void PassValue() { PassValue(tag_, /*depth=*/0); }
  // The same, and counts the field in skipped(), as well as the fields inside a group.
  void Skip() {
    ++skipped_;
    PassValue();
  }
  int64_t skipped() const { return skipped_; }

  // How many bytes are left of the message.
  size_t left() const { return left_; }
  bool at_end() const { return left_ == 0; }
  // Whether nothing was wrong so far.
  bool ok() const { return ok_; }
  // Makes it wrong for a reason of the caller.
  void Fail() { ok_ = false; }

 private:
  static constexpr int kMaxDepth = 100;  // of groups, as in protobuf

  template <typename Value>
  Value Number() {
    Value value = 0;
    const absl::string_view bytes = Take(sizeof(value));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  void Advance(size_t bytes) {
    next_ += bytes;
    in_piece_ -= bytes;
    left_ -= bytes;
  }

  bool NextPiece() {
    const absl::string_view piece = pieces_ == nullptr ? absl::string_view() : pieces_->Next();
    next_ = piece.data();
    in_piece_ = piece.size();
    if (piece.empty()) ok_ = false;
    return ok_;
  }

  void PassValue(uint32_t tag, int depth) {
    switch (tag & 7) {
      case kWireVarint:
        Varint();
        return;
      case kWireFixed64:
        return Pass(8);
      case kWireBytes:
        return Pass(Varint());
      case kWireFixed32:
        return Pass(4);
      case kWireGroup:
        return PassGroup(tag >> 3, depth + 1);
      default:
        ok_ = false;
    }
  }

  void PassGroup(uint32_t field, int depth) {
    if (depth > kMaxDepth) ok_ = false;
    while (Next()) {
      if ((tag_ & 7) == kWireEndGroup) {
        ok_ = tag_ >> 3 == field;
        return;
      }
      ++skipped_;
      PassValue(tag_, depth);
    }
    ok_ = false;  // the group has no end
  }

  WirePieces* const pieces_ = nullptr;
  const char* next_ = nullptr;
  size_t in_piece_ = 0;  // bytes that follow in the piece, which may be more than `left_`
  size_t left_;
  uint32_t tag_ = 0;
  int64_t skipped_ = 0;
  bool ok_ = true;
};

}  // namespace sru

#endif  // SRU_BASE_WIRE_READER_H_
