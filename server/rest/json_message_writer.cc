#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/valid_utf8.h"
#include "base/wire_reader.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "server/rest/error_response.h"
#include "server/rest/json_message.h"
#include "server/rest/json_message_form.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Holds most answers, so that they are not copied while they grow.
constexpr size_t kFirstBlock = 1 << 10;

// Writes the bytes of messages, which this process has serialized.
class MessageWriter {
 public:
  MessageWriter(JsonFields fields, MemoryHold* memory, std::string* json)
      : fields_(fields), memory_(*memory), json_(*json) {}

  const absl::Status& status() const { return status_; }

  bool Write(absl::string_view bytes, const MessageForm& form) {
    std::optional<WireReader> reader;
    bool more = false;  // the reader has a field
    bool first = true;
    json_ += '{';
    for (const FieldForm& field : form.fields) {
      if (field.restarts) {
        reader.emplace(bytes);
        more = reader->Next();
      }
      for (; more && reader->field() < field.number; more = reader->Next()) reader->PassValue();
      const bool is_there = more && reader->field() == field.number;
      if (!is_there && (field.is_optional || fields_ == JsonFields::kSet)) continue;
      json_.append(field.key, first ? 1 : 0);
      first = false;
      more = field.is_list ? WriteList(field, &*reader, more) : WriteOne(field, &*reader, more);
      if (!status_.ok()) return false;
    }
    json_ += '}';
    if (reader.has_value() && !reader->ok()) {
      status_ = absl::InternalError("a service answered with a message that cannot be read");
    }
    return Settle();
  }

 private:
  // Reserves what the text has grown by, and as much again: it is copied when it outgrows its
  // block.
  bool Settle() {
    const int64_t grown = static_cast<int64_t>(json_.size()) - settled_;
    if (grown < kReserveStep) return status_.ok();
    settled_ += grown;
    if (!memory_.Grow(2 * grown)) status_ = memory_.NoMemory();
    return status_.ok();
  }

  template <typename Integer>
  void AppendLong(Integer value) {
    const char* const quote = fields_ == JsonFields::kPlain ? "" : "\"";
    absl::StrAppend(&json_, quote, value, quote);
  }
  template <typename Real>
  void AppendReal(Real value) {
    if (std::isfinite(value)) {
      AppendJsonNumber(value, &json_);
    } else {
      json_ += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    }
  }
  void AppendEnum(const FieldForm& field, int number) {
    const EnumValueDescriptor* const value = field.values->FindValueByNumber(number);
    value == nullptr ? absl::StrAppend(&json_, number)
                     : absl::StrAppend(&json_, "\"", absl::string_view(value->name()), "\"");
  }

  // Where `*reader` is after the tag.
  bool WriteValue(const FieldForm& field, WireReader* reader) {
    switch (field.type) {
      case FieldDescriptor::TYPE_INT32:
        absl::StrAppend(&json_, static_cast<int32_t>(reader->Varint()));
        break;
      case FieldDescriptor::TYPE_INT64:
        AppendLong(static_cast<int64_t>(reader->Varint()));
        break;
      case FieldDescriptor::TYPE_UINT32:
        absl::StrAppend(&json_, static_cast<uint32_t>(reader->Varint()));
        break;
      case FieldDescriptor::TYPE_UINT64:
        AppendLong(reader->Varint());
        break;
      case FieldDescriptor::TYPE_FLOAT:
        AppendReal(reader->Float());
        break;
      case FieldDescriptor::TYPE_DOUBLE:
        AppendReal(reader->Double());
        break;
      case FieldDescriptor::TYPE_BOOL:
        json_ += reader->Varint() != 0 ? "true" : "false";
        break;
      case FieldDescriptor::TYPE_ENUM:
        AppendEnum(field, static_cast<int>(reader->Varint()));
        break;
      case FieldDescriptor::TYPE_STRING:
        AppendJsonString(reader->Bytes(), &json_);
        break;
      case FieldDescriptor::TYPE_BYTES:
        absl::StrAppend(&json_, "\"", absl::Base64Escape(reader->Bytes()), "\"");
        break;
      case FieldDescriptor::TYPE_MESSAGE:
        return Write(reader->Bytes(), *field.message);
      default:
        status_ = absl::InternalError("the contract has a type of field that is not written");
    }
    return Settle();
  }

  // The following return whether the reader has another field. `more`: it has one, which may be a
  // later one than `field`.
  bool WriteOne(const FieldForm& field, WireReader* reader, bool more) {
    if (more && reader->field() == field.number) return WriteValue(field, reader) && reader->Next();
    WireReader zeros(absl::string_view("\0\0\0\0\0\0\0\0", 8));  // the default of every type
    WriteValue(field, &zeros);
    return more;
  }

  bool WriteList(const FieldForm& field, WireReader* reader, bool more) {
    json_ += field.is_map ? '{' : '[';
    bool first = true;
    for (; more && reader->field() == field.number; more = reader->Next()) {
      const bool is_packed = field.is_packed && reader->kind() == kWireBytes;
      const size_t outer = is_packed ? reader->Enter() : 0;
      while (reader->ok() && !(is_packed && reader->at_end())) {
        if (!first) json_ += ',';
        first = false;
        const bool ok = field.is_map ? WriteEntry(reader->Bytes(), field.message->fields)
                                     : WriteValue(field, reader);
        if (!ok) return false;
        if (!is_packed) break;
      }
      if (is_packed) reader->Leave(outer);
    }
    json_ += field.is_map ? '}' : ']';
    return more;
  }

  // The keys of maps are strings in JSON.
  bool WriteEntry(absl::string_view bytes, const std::vector<FieldForm>& key_and_value) {
    WireReader reader(bytes);
    const absl::string_view quote =
        key_and_value[0].type == FieldDescriptor::TYPE_INT32 ? "\"" : "";
    absl::StrAppend(&json_, quote);
    const bool more = WriteOne(key_and_value[0], &reader, reader.Next());
    absl::StrAppend(&json_, quote, ":");
    WriteOne(key_and_value[1], &reader, more);
    return status_.ok();
  }

  const JsonFields fields_;
  MemoryHold& memory_;
  std::string& json_;
  int64_t settled_ = static_cast<int64_t>(json_.size());
  absl::Status status_;
};

template <typename Real>
void AppendShortest(Real value, std::string* json) {
  if (!std::isfinite(value)) {
    *json += "null";
    return;
  }
  char digits[32];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
  json->append(digits, end.ptr);
}

}  // namespace

absl::Status WriteJsonMessage(const Descriptor& type, const absl::Cord& bytes, JsonFields fields,
                              MemoryHold* memory, std::string* json) {
  absl::Cord whole = bytes;
  json->reserve(json->size() + kFirstBlock);
  MessageWriter writer(fields, memory, json);
  writer.Write(whole.Flatten(), FormOf(type));
  return writer.status();
}

absl::Status WriteJsonMessage(const Message& message, JsonFields fields, MemoryHold* memory,
                              std::string* json) {
  return WriteJsonMessage(*message.GetDescriptor(), calls::ToCord(message), fields, memory, json);
}

void AppendJsonString(absl::string_view text, std::string* json) {
  static constexpr char kHex[] = "0123456789abcdef";
  if (!IsValidUtf8({text.data(), text.size()})) {
    *json += JsonText(nlohmann::json(std::string(text)));
    return;
  }
  json->push_back('"');
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    json->append(text.data() + begin, i - begin);
    begin = i + 1;
    *json += '\\';
    const size_t known = absl::string_view("\"\\\n\r\t").find(text[i]);
    if (known != absl::string_view::npos) {
      *json += "\"\\nrt"[known];
    } else {
      *json += "u00";
      *json += kHex[c >> 4];
      *json += kHex[c & 15];
    }
  }
  json->append(text.data() + begin, text.size() - begin);
  json->push_back('"');
}

void AppendJsonText(absl::string_view before, absl::string_view text, std::string* json) {
  absl::StrAppend(json, before);
  AppendJsonString(text, json);
}

void AppendJsonNumber(double value, std::string* json) { AppendShortest(value, json); }
void AppendJsonNumber(float value, std::string* json) { AppendShortest(value, json); }

}  // namespace sru::server::rest
