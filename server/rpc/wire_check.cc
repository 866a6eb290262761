#include "server/rpc/wire_check.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "models/utf8.h"

namespace sru::server {
namespace {

using ::google::protobuf::Descriptor;
using ::google::protobuf::FieldDescriptor;

// Our messages nest three deep; nothing recurses.
constexpr int kMaxDepth = 16;

bool ReadVarint(absl::string_view* in, uint64_t* value) {
  *value = 0;
  for (int shift = 0; shift < 64 && !in->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in->front());
    in->remove_prefix(1);
    *value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

class Walker {
 public:
  explicit Walker(absl::string_view all) : begin_(all.data()) {}

  // The first fault in the message `in` at `path`, if there is one.
  std::optional<std::string> Walk(const Descriptor& type, absl::string_view in,
                                  const std::string& path, int depth) const {
    std::map<int, int> seen;  // field number -> how many of it came before
    while (!in.empty()) {
      const char* field_start = in.data();
      const auto broken = [&](absl::string_view what) {
        return absl::StrCat(path.empty() ? "message" : path, ": malformed protobuf, ", what,
                            " at byte ", field_start - begin_);
      };
      uint64_t tag = 0;
      if (!ReadVarint(&in, &tag)) return broken("broken field tag");
      const uint64_t number = tag >> 3;
      if (number == 0 || number > FieldDescriptor::kMaxNumber) return broken("bad field number");
      const FieldDescriptor* field = type.FindFieldByNumber(static_cast<int>(number));
      switch (tag & 7) {
        case 0: {
          uint64_t value = 0;
          if (!ReadVarint(&in, &value)) return broken("broken varint");
          break;
        }
        case 1:
          if (in.size() < 8) return broken("cut-off 64-bit value");
          in.remove_prefix(8);
          break;
        case 2: {
          uint64_t length = 0;
          if (!ReadVarint(&in, &length)) return broken("broken length");
          if (length > in.size()) {
            return broken(absl::StrCat("length ", length, " where ", in.size(), " bytes are left"));
          }
          const absl::string_view value = in.substr(0, length);
          in.remove_prefix(length);
          if (field == nullptr) break;
          const std::string field_path = FieldPath(*field, path, &seen);
          if (field->type() == FieldDescriptor::TYPE_STRING) {
            const size_t valid =
                models::FindInvalidUtf8(std::string_view(value.data(), value.size()));
            if (valid < value.size()) {
              return absl::StrCat(field_path, ": expected UTF-8, found byte 0x",
                                  absl::BytesToHexString(value.substr(valid, 1)), " at offset ",
                                  valid);
            }
          } else if (field->type() == FieldDescriptor::TYPE_MESSAGE && depth < kMaxDepth) {
            std::optional<std::string> fault =
                Walk(*field->message_type(), value, field_path, depth + 1);
            if (fault.has_value()) return fault;
          } else if (field->is_packed()) {
            absl::string_view packed = value;
            while (field->type() == FieldDescriptor::TYPE_INT32 && !packed.empty()) {
              const char* varint_start = packed.data();
              uint64_t ignored = 0;
              if (!ReadVarint(&packed, &ignored)) {
                return absl::StrCat(field_path, ": malformed protobuf, broken varint at byte ",
                                    varint_start - begin_);
              }
            }
          }
          break;
        }
        case 5:
          if (in.size() < 4) return broken("cut-off 32-bit value");
          in.remove_prefix(4);
          break;
        default:
          return broken(absl::StrCat("unexpected wire type ", tag & 7));
      }
    }
    return std::nullopt;
  }

 private:
  static std::string FieldPath(const FieldDescriptor& field, const std::string& path,
                               std::map<int, int>* seen) {
    std::string result = absl::StrCat(path, path.empty() ? "" : ".", field.name());
    if (field.is_repeated() && !field.is_packed()) {
      absl::StrAppend(&result, "[", (*seen)[field.number()]++, "]");
    }
    return result;
  }

  const char* begin_;
};

}  // namespace

absl::Status ExplainParseFailure(const Descriptor& type, absl::string_view bytes) {
  const std::optional<std::string> fault = Walker(bytes).Walk(type, bytes, "", 0);
  if (fault.has_value()) return absl::InvalidArgumentError(*fault);
  return absl::InvalidArgumentError(
      absl::StrCat("message: the ", bytes.size(), " bytes are not a valid ", type.full_name()));
}

}  // namespace sru::server
