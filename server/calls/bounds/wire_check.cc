#include "server/calls/bounds/wire_check.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/container/inlined_vector.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "base/utf8.h"
#include "base/wire_reader.h"

namespace sru::server::calls {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;

// Our messages nest three deep; nothing recurses.
constexpr int kMaxWireDepth = 16;

// A level of nesting: the message's type and the position of the walk in it.
struct Level {
  const Descriptor* type = nullptr;
  const FieldDescriptor* field = nullptr;
  int index = -1;  // of the field among those with its name; -1 if it is not repeated
};

class Walker {
 public:
  explicit Walker(absl::string_view all) : begin_(all.data()) {}

  // The first fault in the message `in`, of the type of the innermost level, if there is one and it
  // is not too far inside.
  std::optional<std::string> Walk(absl::string_view in) {
    Level& level = levels_.back();
    const Descriptor& type = *level.type;
    // By the position of the field in the message's type: how many of this field came before.
    absl::InlinedVector<int, 16> seen(static_cast<size_t>(type.field_count()), 0);
    WireReader reader(in);
    const size_t end = static_cast<size_t>(in.data() - begin_) + in.size();
    while (!reader.at_end() && !GaveUp(end - reader.left())) {
      const size_t field_start = end - reader.left();
      level.field = nullptr;
      const auto broken = [&](const auto&... what) {
        // Of the message, not of the field.
        const std::string path = Path(levels_.size() - 1);
        return absl::StrCat(path.empty() ? "message" : path, ": malformed protobuf, ", what...,
                            " at byte ", field_start);
      };
      ++fields_;
      const uint64_t tag = reader.Varint();
      if (!reader.ok()) return broken("broken field tag");
      const uint64_t number = tag >> 3;
      if (number == 0 || number > FieldDescriptor::kMaxNumber) return broken("bad field number");
      switch (tag & 7) {
        case kWireVarint:
          reader.Varint();
          if (!reader.ok()) return broken("broken varint");
          break;
        case kWireFixed64:
          reader.Pass(8);
          if (!reader.ok()) return broken("cut-off 64-bit value");
          break;
        case kWireBytes: {
          const uint64_t length = reader.Varint();
          if (!reader.ok()) return broken("broken length");
          if (length > reader.left()) {
            return broken("length ", length, " where ", reader.left(), " bytes are left");
          }
          const absl::string_view value = reader.Take(length);
          const FieldDescriptor* const field = type.FindFieldByNumber(static_cast<int>(number));
          if (field == nullptr) break;
          const bool counted = field->is_repeated() && !field->is_packed();
          level.field = field;
          level.index = counted ? seen[static_cast<size_t>(field->index())]++ : -1;
          std::optional<std::string> fault = CheckValue(*field, value);
          if (fault.has_value()) return fault;
          break;
        }
        case kWireFixed32:
          reader.Pass(4);
          if (!reader.ok()) return broken("cut-off 32-bit value");
          break;
        default:
          return broken("unexpected wire type ", tag & 7);
      }
    }
    return std::nullopt;
  }

  std::optional<std::string> Walk(const Descriptor& type, absl::string_view in) {
    levels_.push_back({&type, nullptr, -1});
    std::optional<std::string> fault = Walk(in);
    levels_.pop_back();
    return fault;
  }

  bool GaveUp(size_t offset) const {
    return fields_ >= kMaxExplainedFields || offset >= kMaxExplainedBytes;
  }

 private:
  // A value with a length, of the field of the innermost level.
  std::optional<std::string> CheckValue(const FieldDescriptor& field, absl::string_view value) {
    if (field.type() == FieldDescriptor::TYPE_STRING) {
      const std::string_view looked_at(value.data(), std::min(value.size(), kMaxExplainedBytes));
      const size_t valid = FindInvalidUtf8(looked_at);
      // The limit of the search may cut a character in two.
      if (valid == looked_at.size() ||
          (valid + 4 > looked_at.size() && looked_at.size() < value.size())) {
        return std::nullopt;
      }
      return absl::StrCat(Path(levels_.size()), ": expected UTF-8, found byte 0x",
                          absl::BytesToHexString(value.substr(valid, 1)), " at offset ", valid);
    }
    if (field.type() == FieldDescriptor::TYPE_MESSAGE) {
      if (levels_.size() > kMaxWireDepth) return std::nullopt;
      return Walk(*field.message_type(), value);
    }
    if (!field.is_packed() || field.type() != FieldDescriptor::TYPE_INT32) return std::nullopt;
    WireReader reader(value);
    const size_t end = static_cast<size_t>(value.data() - begin_) + value.size();
    while (!reader.at_end() && !GaveUp(end - reader.left())) {
      const size_t varint_start = end - reader.left();
      reader.Varint();
      if (reader.ok()) continue;
      return absl::StrCat(Path(levels_.size()), ": malformed protobuf, broken varint at byte ",
                          varint_start);
    }
    return std::nullopt;
  }

  // "sequences[3].text": the path made of the fields of the first `depth` levels.
  std::string Path(size_t depth) const {
    std::string path;
    for (size_t i = 0; i < depth; ++i) {
      const Level& level = levels_[i];
      absl::StrAppend(&path, path.empty() ? "" : ".", level.field->name());
      if (level.index >= 0) absl::StrAppend(&path, "[", level.index, "]");
    }
    return path;
  }

  const char* begin_;
  int fields_ = 0;
  absl::InlinedVector<Level, kMaxWireDepth + 2> levels_;
};

}  // namespace

absl::Status ExplainParseFailure(const Descriptor& type, absl::string_view bytes) {
  Walker walker(bytes);
  const std::optional<std::string> fault = walker.Walk(type, bytes);
  if (fault.has_value()) return absl::InvalidArgumentError(*fault);
  if (walker.GaveUp(bytes.size())) {
    return InvalidArgument("message: the ", bytes.size(), " bytes are not a valid ",
                           type.full_name(), "; no fault was found in its first ",
                           kMaxExplainedFields, " fields and ", kMaxExplainedBytes, " bytes");
  }
  return InvalidArgument("message: the ", bytes.size(), " bytes are not a valid ",
                         type.full_name());
}

}  // namespace sru::server::calls
