#include "server/rest/json_message.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/utf8.h"
#include "google/protobuf/descriptor.h"
#include "nlohmann/json.hpp"
#include "server/rest/json_body.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
// Memory is reserved in steps of so many bytes.
constexpr int64_t kReserveStep = 16 << 10;
// What an element of a list takes: protobuf's lists double, and copy while they do.
constexpr int64_t kBytesPerNumber = 24;
constexpr int64_t kBytesPerString = 48;
constexpr int64_t kBytesPerMessage = 64;
// Below it, numbers are rounded to the largest float32 at most.
constexpr double kFloatLimit = 3.4028235677973366e38;

float ToFloat(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::isfinite(value) ? std::clamp(value, -kMost, kMost) : value);
}

JsonNumber WholeNumber(int64_t value) {
  JsonNumber number;
  number.real = static_cast<double>(value);
  number.as_signed = value;
  if (value >= 0) number.as_unsigned = static_cast<uint64_t>(value);
  return number;
}

absl::string_view NameOf(const FieldDescriptor& field) { return field.name(); }

// Takes memory in steps, so that a long message does not touch the budget for each of its values.
class Meter {
 public:
  explicit Meter(MemoryHold* memory) : memory_(*memory) {}

  [[nodiscard]] bool Take(int64_t bytes) {
    waiting_ += bytes;
    return waiting_ < kReserveStep || Settle();
  }
  [[nodiscard]] bool Settle() { return memory_.Grow(std::exchange(waiting_, 0)); }

 private:
  MemoryHold& memory_;
  int64_t waiting_ = 0;
};

// Fills a message from the events of its JSON. The stack is as deep as the message's type allows, whatever the text.
class MessageReader {
 public:
  MessageReader(MemoryHold* memory, Message* message) : meter_(memory), root_(*message) {}

  absl::Status Finish() {
    if (status_.ok() && !meter_.Settle()) status_ = NoRequestMemory();
    return status_;
  }

  bool Null() {
    // Of a field: as if it were not there.
    if (!frames_.empty() && !frames_.back().in_array && !frames_.back().is_map) return true;
    return Refuse("null");
  }
  bool Bool(bool value) {
    const FieldDescriptor* const field = Target();
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL)
      return Refuse(value ? "true" : "false");
    return Put(*field, value, &Reflection::SetBool, &Reflection::AddBool);
  }
  bool Number(const JsonNumber& number) {
    const auto text = [&number] { return Excerpt(number.text); };
    if (!number.as_signed.has_value() && !number.as_unsigned.has_value())
      return SetReal(number.real, text);
    return SetNumber(number, text);
  }
  bool String(absl::string_view text) {
    const FieldDescriptor* const field = Target();
    if (field == nullptr) return Refuse("a string");
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return SetString(*field, text);
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* const value =
            field->enum_type()->FindValueByName(std::string(text));
        if (value == nullptr) return Refuse(absl::StrCat("'", Excerpt(text), "'"));
        return SetEnum(*field, value->number());
      }
      case FieldDescriptor::CPPTYPE_BOOL:
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Refuse("a string");
      default:
        return SetNumberFromText(text);
    }
  }

  bool StartObject() {
    if (frames_.empty()) {
      frames_.push_back(Frame(&root_));
      return true;
    }
    Frame& frame = frames_.back();
    const FieldDescriptor* const field = Target();
    const bool is_map = field != nullptr && field->is_map() && !frame.in_array;
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE ||
        (field->is_map() && frame.in_array)) {
      return Refuse("an object");
    }
    if (is_map) {
      Frame map(frame.message);
      map.field = field;
      map.is_map = true;
      frames_.push_back(std::move(map));
      return true;
    }
    if (!Claim(*field, kBytesPerMessage + 8 * field->message_type()->field_count())) return false;
    const Reflection& reflection = *frame.message->GetReflection();
    Message* const message = field->is_repeated() ? reflection.AddMessage(frame.message, field)
                                                  : reflection.MutableMessage(frame.message, field);
    frames_.push_back(Frame(message));
    return true;
  }
  bool Key(absl::string_view name) {
    Frame& frame = frames_.back();
    if (frame.is_map) return MapKey(name);
    const FieldDescriptor* const field = FindField(*frame.message->GetDescriptor(), name);
    if (field == nullptr) {
      frame.field = nullptr;
      return Fail(absl::StrCat(PathPrefix(), "unknown field '", Excerpt(name),
                               "'; expected one of ", FieldNames(*frame.message->GetDescriptor())));
    }
    frame.field = field;
    if (!frame.MarkSeen(field->index())) return Fail(absl::StrCat(Path(), ": the key comes twice"));
    return true;
  }
  void EndObject() { frames_.pop_back(); }
  bool StartArray() {
    Frame* const frame = frames_.empty() ? nullptr : &frames_.back();
    if (frame == nullptr || frame->in_array || frame->is_map || frame->field == nullptr ||
        !frame->field->is_repeated() || frame->field->is_map()) {
      return Refuse("a list");
    }
    frame->in_array = true;
    frame->index = 0;
    return true;
  }
  void EndArray() { frames_.back().in_array = false; }

 private:
  struct Frame {
    explicit Frame(Message* filled) : message(filled) {}

    Message* message = nullptr;
    const FieldDescriptor* field = nullptr;  // whose value comes
    bool in_array = false;
    bool is_map = false;  // the object is the map `field` of `message`
    int index = 0;        // in the list
    std::vector<bool> seen;
    std::set<std::string> map_keys;

    bool MarkSeen(int index_of_field) {
      const auto at = static_cast<size_t>(index_of_field);
      if (seen.size() <= at) seen.resize(at + 1);
      if (seen[at]) return false;
      seen[at] = true;
      return true;
    }
  };

  static const FieldDescriptor* FindField(const Descriptor& type, absl::string_view name) {
    const FieldDescriptor* const field = type.FindFieldByName(std::string(name));
    if (field != nullptr) return field;
    for (int i = 0; i < type.field_count(); ++i) {
      if (absl::string_view(type.field(i)->json_name()) == name) return type.field(i);
    }
    return nullptr;
  }

  static std::string FieldNames(const Descriptor& type) {
    std::string names;
    for (int i = 0; i < type.field_count(); ++i)
      absl::StrAppend(&names, i == 0 ? "" : ", ", NameOf(*type.field(i)));
    return names;
  }

  // The field that a scalar or an object would be put into; null where the JSON may have none.
  const FieldDescriptor* Target() const {
    if (frames_.empty()) return nullptr;
    const Frame& frame = frames_.back();
    if (frame.field == nullptr) return nullptr;
    if (frame.is_map) return nullptr;
    if (frame.field->is_repeated() && !frame.field->is_map() && !frame.in_array) return nullptr;
    return frame.field;
  }

  // Before a value is put into the field: that it may be, and that there is memory for it.
  bool Claim(const FieldDescriptor& field, int64_t bytes) {
    if (!meter_.Take(bytes)) {
      status_ = NoRequestMemory();
      return false;
    }
    Frame& frame = frames_.back();
    if (field.is_repeated()) {
      ++frame.index;
      return true;
    }
    const OneofDescriptor* const oneof = field.containing_oneof();
    if (oneof != nullptr) {
      const FieldDescriptor* const other =
          frame.message->GetReflection()->GetOneofFieldDescriptor(*frame.message, oneof);
      if (other != nullptr) {
        return Fail(
            absl::StrCat(Path(), ": ", NameOf(*other), " is set already; expected one of them"));
      }
    }
    return true;
  }

  // Puts a value that is not a message into the field, by the function for its kind of field.
  template <typename Value, typename Set, typename Add>
  bool Put(const FieldDescriptor& field, Value value, Set set, Add add) {
    if (!Claim(field, kBytesPerNumber)) return false;
    Message* const message = frames_.back().message;
    const Reflection& reflection = *message->GetReflection();
    if (field.is_repeated()) {
      (reflection.*add)(message, &field, value);
    } else {
      (reflection.*set)(message, &field, value);
    }
    return true;
  }

  template <typename Text>
  bool SetNumber(const JsonNumber& number, const Text& text) {
    if (!frames_.empty() && frames_.back().is_map) return MapValue(number.real, text);
    const FieldDescriptor* const field = Target();
    if (field == nullptr) return Refuse(absl::StrCat("the number ", text()));
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        if (!FitsInt32(number)) return Refuse(text());
        return Put(*field, static_cast<int32_t>(*number.as_signed), &Reflection::SetInt32,
                   &Reflection::AddInt32);
      case FieldDescriptor::CPPTYPE_INT64:
        if (!number.as_signed.has_value()) return Refuse(text());
        return Put(*field, *number.as_signed, &Reflection::SetInt64, &Reflection::AddInt64);
      case FieldDescriptor::CPPTYPE_UINT32:
        if (number.as_unsigned.value_or(UINT64_MAX) > UINT32_MAX) return Refuse(text());
        return Put(*field, static_cast<uint32_t>(*number.as_unsigned), &Reflection::SetUInt32,
                   &Reflection::AddUInt32);
      case FieldDescriptor::CPPTYPE_UINT64:
        if (!number.as_unsigned.has_value()) return Refuse(text());
        return Put(*field, *number.as_unsigned, &Reflection::SetUInt64, &Reflection::AddUInt64);
      case FieldDescriptor::CPPTYPE_FLOAT:
        if (std::isfinite(number.real) && std::abs(number.real) >= kFloatLimit)
          return Refuse(text());
        return Put(*field, ToFloat(number.real), &Reflection::SetFloat, &Reflection::AddFloat);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return Put(*field, number.real, &Reflection::SetDouble, &Reflection::AddDouble);
      case FieldDescriptor::CPPTYPE_ENUM:
        if (!FitsInt32(number)) return Refuse(text());
        return SetEnum(*field, static_cast<int>(*number.as_signed));
      default:
        return Refuse(absl::StrCat("the number ", text()));
    }
  }
  static bool FitsInt32(const JsonNumber& number) {
    return number.as_signed.has_value() &&
           *number.as_signed >= std::numeric_limits<int32_t>::min() &&
           *number.as_signed <= std::numeric_limits<int32_t>::max();
  }

  // 1.0 and 1e3 are whole numbers, too.
  template <typename Text>
  bool SetReal(double real, const Text& text) {
    const bool whole =
        std::isfinite(real) && real == std::floor(real) && std::abs(real) < 9007199254740992.0;
    JsonNumber number;
    if (whole) number = WholeNumber(static_cast<int64_t>(real));
    number.real = real;  // -0.0 keeps its sign
    return SetNumber(number, text);
  }

  // protobuf's form has numbers as strings as well, and must for those that JSON's readers would round.
  bool SetNumberFromText(absl::string_view text) {
    const auto found = [&text] { return absl::StrCat("'", Excerpt(text), "'"); };
    if (text.empty() || text.front() == ' ' || text.back() == ' ') return Refuse(found());
    const FieldDescriptor::CppType type = Target()->cpp_type();
    const bool is_real =
        type == FieldDescriptor::CPPTYPE_FLOAT || type == FieldDescriptor::CPPTYPE_DOUBLE;
    JsonNumber number;
    if (is_real && (text == "NaN" || text == "Infinity" || text == "-Infinity")) {
      number.real = text == "NaN" ? std::numeric_limits<double>::quiet_NaN()
                                  : std::numeric_limits<double>::infinity();
      if (text.front() == '-') number.real = -number.real;
      return SetNumber(number, found);
    }
    int64_t as_signed = 0;
    uint64_t as_unsigned = 0;
    if (!is_real && absl::SimpleAtoi(text, &as_signed)) {
      return SetNumber(WholeNumber(as_signed), found);
    }
    if (!is_real && absl::SimpleAtoi(text, &as_unsigned)) {
      number.as_unsigned = as_unsigned;
      return SetNumber(number, found);
    }
    if (!absl::SimpleAtod(text, &number.real) || !std::isfinite(number.real)) {
      return Refuse(found());
    }
    return SetReal(number.real, found);
  }

  bool SetString(const FieldDescriptor& field, absl::string_view text) {
    std::string value;
    if (field.type() == FieldDescriptor::TYPE_BYTES) {
      // Both alphabets, with or without padding.
      const bool web_safe = text.find_first_of("-_") != absl::string_view::npos;
      if (!(web_safe ? absl::WebSafeBase64Unescape(text, &value)
                     : absl::Base64Unescape(text, &value))) {
        return Refuse("something else");
      }
    } else {
      value = std::string(text);
    }
    if (!Claim(field, kBytesPerString + static_cast<int64_t>(value.size()))) return false;
    Message* const message = frames_.back().message;
    const Reflection& reflection = *message->GetReflection();
    if (field.is_repeated()) {
      reflection.AddString(message, &field, std::move(value));
    } else {
      reflection.SetString(message, &field, std::move(value));
    }
    return true;
  }

  bool SetEnum(const FieldDescriptor& field, int number) {
    return Put(field, number, &Reflection::SetEnumValue, &Reflection::AddEnumValue);
  }

  // The contract's maps are from int32 to float; MapValue() refuses others.
  bool MapKey(absl::string_view name) {
    Frame& frame = frames_.back();
    if (!meter_.Take(kBytesPerMessage + kBytesPerString + static_cast<int64_t>(name.size()))) {
      status_ = NoRequestMemory();
      return false;
    }
    if (!frame.map_keys.emplace(name).second) {
      return Fail(absl::StrCat(Path(), ": the key '", Excerpt(name), "' comes twice"));
    }
    if (!absl::SimpleAtoi(name, &map_key_) || name.front() == ' ' || name.back() == ' ') {
      return Fail(absl::StrCat(Path(), ": expected whole numbers of 32 bits as keys, found '",
                               Excerpt(name), "'"));
    }
    return true;
  }
  template <typename Text>
  bool MapValue(double real, const Text& text) {
    Frame& frame = frames_.back();
    const FieldDescriptor* const key = frame.field->message_type()->FindFieldByNumber(1);
    const FieldDescriptor* const value = frame.field->message_type()->FindFieldByNumber(2);
    if (key->cpp_type() != FieldDescriptor::CPPTYPE_INT32 ||
        value->cpp_type() != FieldDescriptor::CPPTYPE_FLOAT || !(std::abs(real) < kFloatLimit)) {
      return Refuse(text());
    }
    Message* const entry = frame.message->GetReflection()->AddMessage(frame.message, frame.field);
    entry->GetReflection()->SetInt32(entry, key, map_key_);
    entry->GetReflection()->SetFloat(entry, value, ToFloat(real));
    return true;
  }

  std::string Path() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.is_map || frame.field == nullptr) continue;
      absl::StrAppend(&path, path.empty() ? "" : ".", NameOf(*frame.field));
      if (frame.in_array) {
        // The element of an inner frame has been counted already.
        absl::StrAppend(&path, "[", &frame == &frames_.back() ? frame.index : frame.index - 1, "]");
      }
    }
    return path;
  }
  // Of the object that the innermost frame is.
  std::string PathPrefix() const {
    const std::string path = Path();
    return path.empty() ? path : absl::StrCat(path, ": ");
  }

  static absl::string_view Expected(const FieldDescriptor& field, bool in_array) {
    if (field.is_map()) return "an object of numbers";
    if (field.is_repeated() && !in_array) return "a list";
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        return "a whole number of 32 bits";
      case FieldDescriptor::CPPTYPE_INT64:
        return "a whole number of 64 bits";
      case FieldDescriptor::CPPTYPE_UINT32:
        return "a whole number from 0 to 2^32 - 1";
      case FieldDescriptor::CPPTYPE_UINT64:
        return "a whole number from 0 to 2^64 - 1";
      case FieldDescriptor::CPPTYPE_FLOAT:
        return "a number in the range of float32";
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return "a number";
      case FieldDescriptor::CPPTYPE_BOOL:
        return "true or false";
      case FieldDescriptor::CPPTYPE_STRING:
        return field.type() == FieldDescriptor::TYPE_BYTES ? "a string in base64" : "a string";
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return "an object";
      default:
        return "";
    }
  }

  bool Refuse(absl::string_view found) {
    if (frames_.empty()) return Fail(absl::StrCat("expected an object, found ", found));
    const Frame& frame = frames_.back();
    const FieldDescriptor& field = *frame.field;
    std::string expected(Expected(field, frame.in_array));
    if (expected.empty()) {
      const google::protobuf::EnumDescriptor& type = *field.enum_type();
      for (int i = 0; i < type.value_count(); ++i) {
        absl::StrAppend(&expected, i == 0 ? "one of " : ", ",
                        absl::string_view(type.value(i)->name()));
      }
    }
    return Fail(absl::StrCat(Path(), ": expected ", expected, ", found ", found));
  }
  bool Fail(const std::string& message) {
    status_ = absl::InvalidArgumentError(message);
    return false;
  }

  Meter meter_;
  Message& root_;
  std::vector<Frame> frames_;
  int32_t map_key_ = 0;
  absl::Status status_;
};

class MessageWriter {
 public:
  MessageWriter(JsonFields fields, MemoryHold* memory, std::string* json)
      : fields_(fields), memory_(*memory), json_(*json) {}

  bool Write(const Message& message) {
    const Descriptor& type = *message.GetDescriptor();
    const Reflection& reflection = *message.GetReflection();
    json_ += '{';
    bool first = true;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.is_repeated()) {
        const int size = reflection.FieldSize(message, &field);
        if (size == 0 && fields_ == JsonFields::kSet) continue;
        Key(field, &first);
        if (!(field.is_map() ? WriteMap(message, field, size) : WriteList(message, field, size)))
          return false;
        continue;
      }
      if ((field.has_presence() || fields_ == JsonFields::kSet) &&
          !reflection.HasField(message, &field))
        continue;
      Key(field, &first);
      if (!WriteValue(message, field)) return false;
    }
    json_ += '}';
    return Settle();
  }

 private:
  // Reserves what the text has grown by, and as much again: it is copied when it outgrows its block.
  bool Settle() {
    const auto size = static_cast<int64_t>(json_.size());
    if (size - settled_ < kReserveStep) return true;
    const int64_t grown = size - settled_;
    settled_ = size;
    return memory_.Grow(2 * grown);
  }

  void Key(const FieldDescriptor& field, bool* first) {
    if (!*first) json_ += ',';
    *first = false;
    json_ += '"';
    json_.append(NameOf(field).data(), NameOf(field).size());
    json_ += "\":";
  }

  template <typename Integer>
  void Append(Integer value) {
    char digits[24];
    const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
    json_.append(digits, end.ptr);
  }
  template <typename Integer>
  void AppendQuoted(Integer value) {
    json_ += '"';
    Append(value);
    json_ += '"';
  }
  template <typename Real>
  void AppendReal(Real value) {
    if (std::isfinite(value)) {
      AppendJsonNumber(value, &json_);
    } else {
      json_ += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    }
  }
  void AppendEnum(const FieldDescriptor& field, int number) {
    const EnumValueDescriptor* const value = field.enum_type()->FindValueByNumber(number);
    if (value == nullptr) {
      Append(number);
      return;
    }
    json_ += '"';
    json_ += value->name();
    json_ += '"';
  }
  void AppendText(const FieldDescriptor& field, const std::string& text) {
    if (field.type() == FieldDescriptor::TYPE_BYTES) {
      json_ += '"';
      json_ += absl::Base64Escape(text);
      json_ += '"';
    } else {
      AppendJsonString(text, &json_);
    }
  }

  // `index` is that of the element of a list; kSingle: the field is not a list.
  static constexpr int kSingle = -1;
  bool WriteValue(const Message& message, const FieldDescriptor& field, int index = kSingle) {
    const Reflection& reflection = *message.GetReflection();
    const auto get = [&](auto single, auto element) {
      return index == kSingle ? (reflection.*single)(message, &field)
                              : (reflection.*element)(message, &field, index);
    };
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        Append(get(&Reflection::GetInt32, &Reflection::GetRepeatedInt32));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        AppendQuoted(get(&Reflection::GetInt64, &Reflection::GetRepeatedInt64));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        Append(get(&Reflection::GetUInt32, &Reflection::GetRepeatedUInt32));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        AppendQuoted(get(&Reflection::GetUInt64, &Reflection::GetRepeatedUInt64));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        AppendReal(get(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        AppendReal(get(&Reflection::GetDouble, &Reflection::GetRepeatedDouble));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        json_ += get(&Reflection::GetBool, &Reflection::GetRepeatedBool) ? "true" : "false";
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        AppendEnum(field, get(&Reflection::GetEnumValue, &Reflection::GetRepeatedEnumValue));
        break;
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string scratch;
        AppendText(field,
                   index == kSingle
                       ? reflection.GetStringReference(message, &field, &scratch)
                       : reflection.GetRepeatedStringReference(message, &field, index, &scratch));
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Write(index == kSingle ? reflection.GetMessage(message, &field)
                                      : reflection.GetRepeatedMessage(message, &field, index));
    }
    return Settle();
  }

  bool WriteList(const Message& message, const FieldDescriptor& field, int size) {
    json_ += '[';
    for (int i = 0; i < size; ++i) {
      if (i > 0) json_ += ',';
      if (!WriteValue(message, field, i)) return false;
    }
    json_ += ']';
    return true;
  }

  // Only requests have maps; this is for whoever echoes one.
  bool WriteMap(const Message& message, const FieldDescriptor& field, int size) {
    const Reflection& reflection = *message.GetReflection();
    json_ += '{';
    for (int i = 0; i < size; ++i) {
      if (i > 0) json_ += ',';
      const Message& entry = reflection.GetRepeatedMessage(message, &field, i);
      json_ += '"';
      Append(entry.GetReflection()->GetInt32(entry, field.message_type()->FindFieldByNumber(1)));
      json_ += "\":";
      if (!WriteValue(entry, *field.message_type()->FindFieldByNumber(2))) return false;
    }
    json_ += '}';
    return true;
  }

  const JsonFields fields_;
  MemoryHold& memory_;
  std::string& json_;
  int64_t settled_ = static_cast<int64_t>(json_.size());
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

absl::Status ParseJsonMessage(absl::string_view text, MemoryHold* memory, Message* message) {
  // The reader holds a string that has escapes, and its copy.
  if (!memory->Grow(2 * static_cast<int64_t>(text.size()))) return NoRequestMemory();
  MessageReader reader(memory, message);
  absl::Status status = ReadJsonBody(text, &reader);
  return status.ok() ? reader.Finish() : status;
}

absl::Status WriteJsonMessage(const Message& message, JsonFields fields, MemoryHold* memory,
                              std::string* json) {
  if (!MessageWriter(fields, memory, json).Write(message)) return NoRequestMemory();
  return absl::OkStatus();
}

void AppendJsonString(absl::string_view text, std::string* json) {
  static constexpr char kHex[] = "0123456789abcdef";
  if (FindInvalidUtf8({text.data(), text.size()}) < text.size()) {
    const std::string repaired =
        nlohmann::json(std::string(text))
            .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    *json += repaired;
    return;
  }
  json->push_back('"');
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    json->append(text.data() + begin, i - begin);
    begin = i + 1;
    switch (c) {
      case '"':
        *json += "\\\"";
        break;
      case '\\':
        *json += "\\\\";
        break;
      case '\n':
        *json += "\\n";
        break;
      case '\r':
        *json += "\\r";
        break;
      case '\t':
        *json += "\\t";
        break;
      default:
        *json += "\\u00";
        *json += kHex[c >> 4];
        *json += kHex[c & 15];
    }
  }
  json->append(text.data() + begin, text.size() - begin);
  json->push_back('"');
}

void AppendJsonNumber(double value, std::string* json) { AppendShortest(value, json); }
void AppendJsonNumber(float value, std::string* json) { AppendShortest(value, json); }

}  // namespace sru::server::rest
