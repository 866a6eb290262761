#include "server/rest/json_message.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/utf8.h"
#include "base/wire_reader.h"
#include "google/protobuf/descriptor.h"
#include "nlohmann/json.hpp"
#include "server/calls/message_cord.h"
#include "server/rest/json_body.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;
// Memory is reserved in steps of so many bytes.
constexpr int64_t kReserveStep = 16 << 10;
// Holds most answers, so that they are not copied while they grow.
constexpr size_t kFirstBlock = 1 << 10;
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

// How the messages of a type are written. Made once for each type, since descriptors and reflection take longer than the writing.
struct MessageForm;
struct FieldForm {
  int number = 0;
  std::string key;  // with its quotes and the colon
  FieldDescriptor::Type type = FieldDescriptor::TYPE_BOOL;
  bool is_list = false;  // or a map
  bool is_map = false;
  bool is_optional = false;
  const EnumDescriptor* values = nullptr;
  const MessageForm* message = nullptr;
};
struct MessageForm {
  std::vector<FieldForm> fields;  // in the order of their declaration
  std::vector<int> by_number;     // where they are there; -1: there is none

  int Find(int number) const {
    const auto at = static_cast<size_t>(number);
    return at < by_number.size() ? by_number[at] : -1;
  }
};

class MessageForms {
 public:
  const MessageForm& Of(const Descriptor& type) {
    MutexLock lock(&mutex_);
    return Make(type);
  }

 private:
  const MessageForm& Make(const Descriptor& type) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto [place, is_new] = forms_.try_emplace(&type);
    MessageForm& form = place->second;
    if (!is_new) return form;
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      FieldForm& made = form.fields.emplace_back();
      made.number = field.number();
      made.key = absl::StrCat("\"", NameOf(field), "\":");
      made.type = field.type();
      made.is_list = field.is_repeated();
      made.is_map = field.is_map();
      made.is_optional = !field.is_repeated() && field.has_presence();
      made.values = field.enum_type();
      if (field.message_type() != nullptr) made.message = &Make(*field.message_type());
      const auto number = static_cast<size_t>(field.number());
      if (form.by_number.size() <= number) form.by_number.resize(number + 1, -1);
      form.by_number[number] = i;
    }
    return form;
  }

  Mutex mutex_;
  std::unordered_map<const Descriptor*, MessageForm> forms_ ABSL_GUARDED_BY(mutex_);
};

const MessageForm& FormOf(const Descriptor& type) {
  static auto* const forms = new MessageForms();
  return forms->Of(type);
}

// Writes the bytes of messages, which this process has serialized.
class MessageWriter {
 public:
  MessageWriter(JsonFields fields, MemoryHold* memory, std::string* json)
      : fields_(fields), memory_(*memory), json_(*json) {}

  const absl::Status& status() const { return status_; }

  bool Write(absl::string_view bytes, const MessageForm& form) {
    const FoundFields found = Find(bytes, form);
    json_ += '{';
    bool first = true;
    for (size_t i = 0; i < form.fields.size(); ++i) {
      const FieldForm& field = form.fields[i];
      if (found[i].count == 0 && (field.is_optional || fields_ == JsonFields::kSet)) continue;
      Separate(&first);
      json_ += field.key;
      if (field.is_list) {
        WriteList(bytes, field, found[i]);
      } else {
        WireReader value = ReaderAt(bytes, found[i]);
        WriteValue(field, &value);
      }
      if (!status_.ok()) return false;
    }
    json_ += '}';
    return Settle();
  }

 private:
  // Where the first value of a list has its tag, or the last one of another field.
  struct Found {
    size_t begin = 0;
    size_t count = 0;
  };
  using FoundFields = absl::InlinedVector<Found, 16>;

  FoundFields Find(absl::string_view bytes, const MessageForm& form) {
    FoundFields found(form.fields.size());
    WireReader reader(bytes);
    for (size_t begin = 0; reader.Next(); begin = bytes.size() - reader.left()) {
      const int index = form.Find(reader.field());
      if (index >= 0) {
        Found& field = found[static_cast<size_t>(index)];
        if (field.count++ == 0 || !form.fields[static_cast<size_t>(index)].is_list) {
          field.begin = begin;
        }
      }
      reader.PassValue();
    }
    if (!reader.ok()) {
      status_ = absl::InternalError("a service answered with a message that cannot be read");
    }
    return found;
  }

  // The default of every type is 0 on the wire.
  static WireReader ReaderAt(absl::string_view bytes, const Found& found) {
    static constexpr absl::string_view kZeros("\0\0\0\0\0\0\0\0", 8);
    if (found.count == 0) return WireReader(kZeros);
    WireReader reader(bytes.substr(found.begin));
    reader.Next();
    return reader;
  }

  // Reserves what the text has grown by, and as much again: it is copied when it outgrows its block.
  bool Settle() {
    const auto size = static_cast<int64_t>(json_.size());
    if (size - settled_ < kReserveStep) return status_.ok();
    const int64_t grown = size - settled_;
    settled_ = size;
    if (!memory_.Grow(2 * grown)) status_ = NoRequestMemory();
    return status_.ok();
  }

  void Separate(bool* first) {
    if (!*first) json_ += ',';
    *first = false;
  }

  template <typename Integer>
  void Append(Integer value) {
    char digits[24];
    const std::to_chars_result end = std::to_chars(digits, digits + sizeof(digits), value);
    json_.append(digits, end.ptr);
  }
  template <typename Integer>
  void AppendLong(Integer value) {
    if (fields_ == JsonFields::kPlain) return Append(value);
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
  void AppendEnum(const FieldForm& field, int number) {
    const EnumValueDescriptor* const value = field.values->FindValueByNumber(number);
    if (value == nullptr) return Append(number);
    absl::StrAppend(&json_, "\"", absl::string_view(value->name()), "\"");
  }

  // Where `*reader` is after the tag.
  bool WriteValue(const FieldForm& field, WireReader* reader) {
    switch (field.type) {
      case FieldDescriptor::TYPE_INT32:
        Append(static_cast<int32_t>(reader->Varint()));
        break;
      case FieldDescriptor::TYPE_INT64:
        AppendLong(static_cast<int64_t>(reader->Varint()));
        break;
      case FieldDescriptor::TYPE_UINT32:
        Append(static_cast<uint32_t>(reader->Varint()));
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

  bool WriteList(absl::string_view bytes, const FieldForm& field, Found found) {
    json_ += field.is_map ? '{' : '[';
    bool first = true;
    WireReader reader(bytes.substr(found.begin));
    while (found.count > 0 && status_.ok() && reader.Next()) {
      if (reader.field() != field.number) {
        reader.PassValue();
        continue;
      }
      --found.count;
      const bool is_packed =
          reader.kind() == kWireBytes && FieldDescriptor::IsTypePackable(field.type);
      const size_t outer = is_packed ? reader.Enter() : 0;
      while (!is_packed || !reader.at_end()) {
        Separate(&first);
        const bool ok =
            field.is_map ? WriteEntry(reader.Bytes(), *field.message) : WriteValue(field, &reader);
        if (!ok || !is_packed) break;
      }
      if (is_packed) reader.Leave(outer);
    }
    json_ += field.is_map ? '}' : ']';
    return status_.ok();
  }

  // The keys of maps are strings in JSON.
  bool WriteEntry(absl::string_view bytes, const MessageForm& form) {
    const FoundFields found = Find(bytes, form);
    WireReader key = ReaderAt(bytes, found[0]);
    const bool is_number = form.fields[0].type == FieldDescriptor::TYPE_INT32;
    if (is_number) json_ += '"';
    if (!WriteValue(form.fields[0], &key)) return false;
    json_ += is_number ? "\":" : ":";
    WireReader value = ReaderAt(bytes, found[1]);
    return WriteValue(form.fields[1], &value);
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

absl::Status ParseJsonMessage(absl::string_view text, MemoryHold* memory, Message* message) {
  // The reader holds a string that has escapes, and its copy.
  if (!memory->Grow(2 * static_cast<int64_t>(text.size()))) return NoRequestMemory();
  MessageReader reader(memory, message);
  absl::Status status = ReadJsonBody(text, &reader);
  return status.ok() ? reader.Finish() : status;
}

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
