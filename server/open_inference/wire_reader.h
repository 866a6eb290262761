// WireReader: reads the fields of a protobuf message in the order of its bytes, without making a message of them.
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
// Not thread-safe. What it returns points into the bytes.
#ifndef SRU_SERVER_OPEN_INFERENCE_WIRE_READER_H_
#define SRU_SERVER_OPEN_INFERENCE_WIRE_READER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace sru::server {

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

class WireReader {
 public:
  explicit WireReader(absl::string_view bytes) : next_(bytes.data()), left_(bytes.size()) {}

  // Goes to the next field. False at the end, and as soon as the bytes are no message.
  bool Next() {
    if (!ok_ || left_ == 0) return false;
    const uint64_t tag = Varint();
    if (tag > UINT32_MAX || tag >> 3 == 0) ok_ = false;
    tag_ = static_cast<uint32_t>(tag);
    return ok_;
  }
  uint32_t tag() const { return tag_; }

  // The value of the field, which must be of that kind. Empty or 0 once something is wrong.
  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && left_ > 0; shift += 7) {
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
  double Double() {
    double value = 0;
    const absl::string_view bytes = Take(sizeof(value));
    if (ok_) std::memcpy(&value, bytes.data(), sizeof(value));
    return value;
  }

  // Skips a field of any kind.
  void Skip() { SkipField(tag_, /*depth=*/0); }

  // Whether nothing is left.
  bool at_end() const { return left_ == 0; }
  // Whether nothing was wrong so far.
  bool ok() const { return ok_; }

 private:
  static constexpr int kMaxDepth = 100;  // of groups, as protobuf has it

  void Advance(size_t bytes) {
    next_ += bytes;
    left_ -= bytes;
  }

  absl::string_view Take(uint64_t bytes) {
    if (!ok_ || bytes > left_) {
      ok_ = false;
      return {};
    }
    const absl::string_view taken(next_, bytes);
    Advance(bytes);
    return taken;
  }

  void SkipField(uint32_t tag, int depth) {
    switch (tag & 7) {
      case kWireVarint:
        Varint();
        return;
      case kWireFixed64:
        Take(8);
        return;
      case kWireBytes:
        Bytes();
        return;
      case kWireFixed32:
        Take(4);
        return;
      case kWireGroup:
        SkipGroup(tag >> 3, depth + 1);
        return;
      default:
        ok_ = false;
    }
  }

  void SkipGroup(uint32_t field, int depth) {
    if (depth > kMaxDepth) ok_ = false;
    while (Next()) {
      if ((tag_ & 7) == kWireEndGroup) {
        ok_ = tag_ >> 3 == field;
        return;
      }
      SkipField(tag_, depth);
    }
    ok_ = false;  // the group has no end
  }

  const char* next_;
  size_t left_;
  uint32_t tag_ = 0;
  bool ok_ = true;
};

}  // namespace sru::server

#endif  // SRU_SERVER_OPEN_INFERENCE_WIRE_READER_H_
