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
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/slice.h"
#include "nlohmann/json.hpp"

namespace sru::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
using nlohmann::json;

// Memory is reserved in steps of so many bytes.
constexpr int64_t kReserveStep = 16 << 10;
// What an element of a list takes: protobuf's lists double, and copy while they do.
constexpr int64_t kBytesPerNumber = 24;
constexpr int64_t kBytesPerString = 48;
constexpr int64_t kBytesPerMessage = 64;
constexpr size_t kLongestExcerpt = 200;
// Below it, numbers are rounded to the largest float32 at most.
constexpr double kFloatLimit = 3.4028235677973366e38;

absl::Status OutOfBudget() {
  return absl::ResourceExhaustedError(
      "the requests of the server hold all the memory that they may; retry later");
}

float ToFloat(double value) {
  constexpr double kMost = std::numeric_limits<float>::max();
  return static_cast<float>(std::isfinite(value) ? std::clamp(value, -kMost, kMost) : value);
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

// Fills a message from the events of JSON's parser. The stack is as deep as the message's type allows, whatever the text.
class MessageReader {
 public:
  MessageReader(MemoryHold* memory, Message* message) : meter_(memory), root_(*message) {}

  absl::Status Finish() {
    if (status_.ok() && !meter_.Settle()) status_ = OutOfBudget();
    return status_;
  }

  bool null() {
    // Of a field: as if it were not there.
    if (!frames_.empty() && !frames_.back().in_array && !frames_.back().is_map) return true;
    return Refuse("null");
  }
  bool boolean(bool value) {
    const FieldDescriptor* const field = Target();
    if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_BOOL)
      return Refuse(value ? "true" : "false");
    if (!Claim(*field, kBytesPerNumber)) return false;
    Message& message = *frames_.back().message;
    const Reflection& reflection = *message.GetReflection();
    if (field->is_repeated()) {
      reflection.AddBool(&message, field, value);
    } else {
      reflection.SetBool(&message, field, value);
    }
    return true;
  }
  bool number_integer(json::number_integer_t value) {
    return SetNumber(static_cast<double>(value), &value, nullptr,
                     [value] { return absl::StrCat(value); });
  }
  bool number_unsigned(json::number_unsigned_t value) {
    const bool fits = value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const auto as_signed = static_cast<int64_t>(value);
    return SetNumber(static_cast<double>(value), fits ? &as_signed : nullptr, &value,
                     [value] { return absl::StrCat(value); });
  }
  bool number_float(json::number_float_t value, const json::string_t& text) {
    return SetReal(value, [&text] { return Excerpt(text); });
  }
  bool string(json::string_t& text) {
    const FieldDescriptor* const field = Target();
    if (field == nullptr) return Refuse("a string");
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_STRING:
        return SetString(*field, text);
      case FieldDescriptor::CPPTYPE_ENUM: {
        const EnumValueDescriptor* const value = field->enum_type()->FindValueByName(text);
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
  bool binary(json::binary_t& /*value*/) { return Refuse("binary data"); }

  bool start_object(size_t /*elements*/) {
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
  bool key(json::string_t& name) {
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
  bool end_object() {
    frames_.pop_back();
    return true;
  }
  bool start_array(size_t /*elements*/) {
    Frame* const frame = frames_.empty() ? nullptr : &frames_.back();
    if (frame == nullptr || frame->in_array || frame->is_map || frame->field == nullptr ||
        !frame->field->is_repeated() || frame->field->is_map()) {
      return Refuse("a list");
    }
    frame->in_array = true;
    frame->index = 0;
    return true;
  }
  bool end_array() {
    frames_.back().in_array = false;
    return true;
  }

  bool parse_error(size_t /*position*/, const std::string& /*last_token*/,
                   const json::exception& error) {
    status_ = JsonSyntaxError(error.what());
    return false;
  }

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

  static const FieldDescriptor* FindField(const Descriptor& type, const std::string& name) {
    const FieldDescriptor* const field = type.FindFieldByName(name);
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
      status_ = OutOfBudget();
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

  template <typename Text>
  bool SetNumber(double real, const int64_t* as_signed, const uint64_t* as_unsigned,
                 const Text& text) {
    if (!frames_.empty() && frames_.back().is_map) return MapValue(real, text);
    const FieldDescriptor* const field = Target();
    if (field == nullptr) return Refuse(absl::StrCat("the number ", text()));
    Message& message = *frames_.back().message;
    const Reflection& reflection = *message.GetReflection();
    const bool list = field->is_repeated();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: {
        if (as_signed == nullptr || *as_signed < std::numeric_limits<int32_t>::min() ||
            *as_signed > std::numeric_limits<int32_t>::max()) {
          return Refuse(text());
        }
        if (!Claim(*field, kBytesPerNumber)) return false;
        const auto value = static_cast<int32_t>(*as_signed);
        list ? reflection.AddInt32(&message, field, value)
             : reflection.SetInt32(&message, field, value);
        return true;
      }
      case FieldDescriptor::CPPTYPE_INT64: {
        if (as_signed == nullptr) return Refuse(text());
        if (!Claim(*field, kBytesPerNumber)) return false;
        list ? reflection.AddInt64(&message, field, *as_signed)
             : reflection.SetInt64(&message, field, *as_signed);
        return true;
      }
      case FieldDescriptor::CPPTYPE_UINT32:
      case FieldDescriptor::CPPTYPE_UINT64: {
        if (as_unsigned == nullptr && (as_signed == nullptr || *as_signed < 0))
          return Refuse(text());
        const uint64_t value =
            as_unsigned != nullptr ? *as_unsigned : static_cast<uint64_t>(*as_signed);
        const bool is_32 = field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32;
        if (is_32 && value > std::numeric_limits<uint32_t>::max()) return Refuse(text());
        if (!Claim(*field, kBytesPerNumber)) return false;
        if (is_32) {
          const auto narrow = static_cast<uint32_t>(value);
          list ? reflection.AddUInt32(&message, field, narrow)
               : reflection.SetUInt32(&message, field, narrow);
        } else {
          list ? reflection.AddUInt64(&message, field, value)
               : reflection.SetUInt64(&message, field, value);
        }
        return true;
      }
      case FieldDescriptor::CPPTYPE_FLOAT: {
        if (std::isfinite(real) && std::abs(real) >= kFloatLimit) return Refuse(text());
        if (!Claim(*field, kBytesPerNumber)) return false;
        const float value = ToFloat(real);
        list ? reflection.AddFloat(&message, field, value)
             : reflection.SetFloat(&message, field, value);
        return true;
      }
      case FieldDescriptor::CPPTYPE_DOUBLE: {
        if (!Claim(*field, kBytesPerNumber)) return false;
        list ? reflection.AddDouble(&message, field, real)
             : reflection.SetDouble(&message, field, real);
        return true;
      }
      case FieldDescriptor::CPPTYPE_ENUM: {
        if (as_signed == nullptr || *as_signed < std::numeric_limits<int32_t>::min() ||
            *as_signed > std::numeric_limits<int32_t>::max()) {
          return Refuse(text());
        }
        return SetEnum(*field, static_cast<int>(*as_signed));
      }
      default:
        return Refuse(absl::StrCat("the number ", text()));
    }
  }

  // 1.0 and 1e3 are whole numbers, too.
  template <typename Text>
  bool SetReal(double real, const Text& text) {
    const bool whole =
        std::isfinite(real) && real == std::floor(real) && std::abs(real) < 9007199254740992.0;
    const int64_t as_signed = whole ? static_cast<int64_t>(real) : 0;
    return SetNumber(real, whole ? &as_signed : nullptr, nullptr, text);
  }

  // protobuf's form has numbers as strings as well, and must for those that JSON's readers would round.
  bool SetNumberFromText(const std::string& text) {
    const auto found = [&text] { return absl::StrCat("'", Excerpt(text), "'"); };
    int64_t as_signed = 0;
    uint64_t as_unsigned = 0;
    if (text.empty() || text.front() == ' ' || text.back() == ' ') return Refuse(found());
    const FieldDescriptor::CppType type = Target()->cpp_type();
    const bool is_real =
        type == FieldDescriptor::CPPTYPE_FLOAT || type == FieldDescriptor::CPPTYPE_DOUBLE;
    if (is_real && text == "NaN")
      return SetNumber(std::numeric_limits<double>::quiet_NaN(), nullptr, nullptr, found);
    if (is_real && text == "Infinity")
      return SetNumber(std::numeric_limits<double>::infinity(), nullptr, nullptr, found);
    if (is_real && text == "-Infinity")
      return SetNumber(-std::numeric_limits<double>::infinity(), nullptr, nullptr, found);
    if (!is_real && absl::SimpleAtoi(text, &as_signed)) {
      return SetNumber(static_cast<double>(as_signed), &as_signed, nullptr, found);
    }
    if (!is_real && absl::SimpleAtoi(text, &as_unsigned)) {
      return SetNumber(static_cast<double>(as_unsigned), nullptr, &as_unsigned, found);
    }
    double real = 0;
    if (!absl::SimpleAtod(text, &real) || !std::isfinite(real)) return Refuse(found());
    return SetReal(real, found);
  }

  bool SetString(const FieldDescriptor& field, std::string& text) {
    Message& message = *frames_.back().message;
    const Reflection& reflection = *message.GetReflection();
    std::string value;
    if (field.type() == FieldDescriptor::TYPE_BYTES) {
      // Both alphabets, with or without padding.
      const bool web_safe = text.find_first_of("-_") != std::string::npos;
      if (!(web_safe ? absl::WebSafeBase64Unescape(text, &value)
                     : absl::Base64Unescape(text, &value))) {
        return Refuse("something else");
      }
    } else {
      value = std::move(text);
    }
    if (!Claim(field, kBytesPerString + static_cast<int64_t>(value.size()))) return false;
    if (field.is_repeated()) {
      reflection.AddString(&message, &field, std::move(value));
    } else {
      reflection.SetString(&message, &field, std::move(value));
    }
    return true;
  }

  bool SetEnum(const FieldDescriptor& field, int number) {
    if (!Claim(field, kBytesPerNumber)) return false;
    Message& message = *frames_.back().message;
    const Reflection& reflection = *message.GetReflection();
    if (field.is_repeated()) {
      reflection.AddEnumValue(&message, &field, number);
    } else {
      reflection.SetEnumValue(&message, &field, number);
    }
    return true;
  }

  // The contract's maps are from int32 to float; MapValue() refuses others.
  bool MapKey(const std::string& name) {
    Frame& frame = frames_.back();
    if (!meter_.Take(kBytesPerMessage + kBytesPerString + static_cast<int64_t>(name.size()))) {
      status_ = OutOfBudget();
      return false;
    }
    if (!frame.map_keys.insert(name).second) {
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

  bool WriteValue(const Message& message, const FieldDescriptor& field) {
    const Reflection& reflection = *message.GetReflection();
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        Append(reflection.GetInt32(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        AppendQuoted(reflection.GetInt64(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        Append(reflection.GetUInt32(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        AppendQuoted(reflection.GetUInt64(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        AppendReal(reflection.GetFloat(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        AppendReal(reflection.GetDouble(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        json_ += reflection.GetBool(message, &field) ? "true" : "false";
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        AppendEnum(field, reflection.GetEnumValue(message, &field));
        break;
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string scratch;
        AppendText(field, reflection.GetStringReference(message, &field, &scratch));
        break;
      }
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Write(reflection.GetMessage(message, &field));
    }
    return Settle();
  }

  bool WriteList(const Message& message, const FieldDescriptor& field, int size) {
    const Reflection& reflection = *message.GetReflection();
    json_ += '[';
    for (int i = 0; i < size; ++i) {
      if (i > 0) json_ += ',';
      switch (field.cpp_type()) {
        case FieldDescriptor::CPPTYPE_INT32:
          Append(reflection.GetRepeatedInt32(message, &field, i));
          break;
        case FieldDescriptor::CPPTYPE_INT64:
          AppendQuoted(reflection.GetRepeatedInt64(message, &field, i));
          break;
        case FieldDescriptor::CPPTYPE_UINT32:
          Append(reflection.GetRepeatedUInt32(message, &field, i));
          break;
        case FieldDescriptor::CPPTYPE_UINT64:
          AppendQuoted(reflection.GetRepeatedUInt64(message, &field, i));
          break;
        case FieldDescriptor::CPPTYPE_FLOAT:
          AppendReal(reflection.GetRepeatedFloat(message, &field, i));
          break;
        case FieldDescriptor::CPPTYPE_DOUBLE:
          AppendReal(reflection.GetRepeatedDouble(message, &field, i));
          break;
        case FieldDescriptor::CPPTYPE_BOOL:
          json_ += reflection.GetRepeatedBool(message, &field, i) ? "true" : "false";
          break;
        case FieldDescriptor::CPPTYPE_ENUM:
          AppendEnum(field, reflection.GetRepeatedEnumValue(message, &field, i));
          break;
        case FieldDescriptor::CPPTYPE_STRING: {
          std::string scratch;
          AppendText(field, reflection.GetRepeatedStringReference(message, &field, i, &scratch));
          break;
        }
        case FieldDescriptor::CPPTYPE_MESSAGE:
          if (!Write(reflection.GetRepeatedMessage(message, &field, i))) return false;
          break;
      }
      if (!Settle()) return false;
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

std::string Excerpt(absl::string_view text) {
  const absl::string_view start = text.substr(0, kLongestExcerpt);
  return std::string(start.substr(0, FindInvalidUtf8({start.data(), start.size()})));
}

absl::Status JsonSyntaxError(absl::string_view what) {
  // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": without the class.
  const size_t end = what.find("] ");
  if (end != absl::string_view::npos) what.remove_prefix(end + 2);
  return absl::InvalidArgumentError(absl::StrCat("the body is not JSON: ", Excerpt(what)));
}

absl::Status ParseJsonMessage(absl::string_view text, MemoryHold* memory, Message* message) {
  // The parser holds the string that it reads twice.
  if (!memory->Grow(2 * static_cast<int64_t>(text.size()))) return OutOfBudget();
  MessageReader reader(memory, message);
  const bool parsed = json::sax_parse(text.begin(), text.end(), &reader);
  absl::Status status = reader.Finish();
  if (status.ok() && !parsed) return absl::InvalidArgumentError("the body is not JSON");
  return status;
}

absl::Status WriteJsonMessage(const Message& message, JsonFields fields, MemoryHold* memory,
                              std::string* json) {
  if (!MessageWriter(fields, memory, json).Write(message)) return OutOfBudget();
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

grpc::ByteBuffer ToByteBuffer(const Message& message) {
  // The slice owns the string. Only a message of more than 2 GiB could not be written.
  auto* const bytes = new std::string(message.SerializeAsString());
  const grpc::Slice slice(
      bytes->data(), bytes->size(), [](void* owned) { delete static_cast<std::string*>(owned); },
      bytes);
  return {&slice, 1};
}

bool FromByteBuffer(const grpc::ByteBuffer& bytes, Message* message) {
  if (!bytes.Valid()) return message->ParseFromArray(nullptr, 0);
  grpc::ByteBuffer copy(bytes);  // counts references
  grpc::ProtoBufferReader reader(&copy);
  return message->ParseFromZeroCopyStream(&reader);
}

}  // namespace sru::server
