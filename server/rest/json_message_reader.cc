#include <algorithm>
#include <bitset>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/similar_name.h"
#include "base/wire_reader.h"
#include "server/calls/bounds/request_outline.h"
#include "server/rest/json_body.h"
#include "server/rest/json_message.h"
#include "server/rest/json_message_form.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr size_t kUsualDepth = 4;
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

// Takes memory in steps, so that a long message does not touch the budget for each of its values.
class Meter {
 public:
  explicit Meter(MemoryHold* memory) : memory_(*memory) {}

  [[nodiscard]] bool Take(int64_t bytes) {
    waiting_ += bytes;
    return waiting_ < kReserveStep || Settle();
  }
  [[nodiscard]] bool Settle() { return memory_.Grow(std::exchange(waiting_, 0)); }
  absl::Status NoMemory() const { return memory_.NoMemory(); }

 private:
  MemoryHold& memory_;
  int64_t waiting_ = 0;
};

// Writes the bytes of a message from the events of its JSON. The stack is as deep as the message's
// type allows, whatever the text.
class MessageReader {
 public:
  MessageReader(const MessageForm& root, const calls::RequestLimits* limits, MemoryHold* memory,
                std::string* wire)
      : limits_(limits), meter_(memory), root_(root), wire_(*wire) {
    frames_.reserve(kUsualDepth);
  }

  absl::Status Finish() {
    if (status_.ok() && !meter_.Settle()) status_ = meter_.NoMemory();
    return status_;
  }

  bool Null() {
    // Of a field: as if it were not there.
    if (!frames_.empty() && !frames_.back().in_array && !frames_.back().is_map) return true;
    return Refuse("null");
  }
  bool Bool(bool value) {
    const FieldForm* const field = Target();
    if (field == nullptr || field->type != FieldDescriptor::TYPE_BOOL)
      return Refuse(value ? "true" : "false");
    return PutVarint(*field, value ? 1 : 0);
  }
  bool Number(absl::string_view digits) {
    const JsonNumber number = ParseJsonNumber(digits);
    const auto text = [&number] { return Excerpt(number.text); };
    return std::isinf(number.real) ? Refuse(text()) : SetNumber(number, text);
  }
  bool String(absl::string_view text, size_t /*size*/) {
    const FieldForm* const field = Target();
    if (field == nullptr) return ListOfOne(text);
    if (field->message != nullptr && field->message->text != nullptr) return PutText(*field, text);
    switch (field->type) {
      case FieldDescriptor::TYPE_STRING:
        return PutString(*field, text);
      case FieldDescriptor::TYPE_BYTES: {
        // Both alphabets, with or without padding.
        const bool web_safe = text.find_first_of("-_") != absl::string_view::npos;
        std::string bytes;
        if (!(web_safe ? absl::WebSafeBase64Unescape(text, &bytes)
                       : absl::Base64Unescape(text, &bytes))) {
          return Refuse("something else");
        }
        return PutString(*field, bytes);
      }
      case FieldDescriptor::TYPE_ENUM: {
        const EnumValueDescriptor* const value = FindValue(*field->values, text);
        if (value == nullptr) return Refuse(absl::StrCat("'", Excerpt(text), "'"));
        return PutVarint(*field, SignedVarint(value->number()));
      }
      case FieldDescriptor::TYPE_BOOL:
      case FieldDescriptor::TYPE_MESSAGE:
        return Refuse("a string");
      default:
        return SetNumberFromText(text);
    }
  }

  bool StartObject() {
    if (frames_.empty()) {
      frames_.emplace_back(&root_);
      return true;
    }
    Frame& frame = frames_.back();
    const FieldForm* const field = Target();
    if (field == nullptr || field->type != FieldDescriptor::TYPE_MESSAGE ||
        (field->is_map && frame.in_array)) {
      return Refuse("an object");
    }
    if (field->is_map) {
      Frame map(frame.type);
      map.field = field;
      map.is_map = true;
      frames_.push_back(map);
      map_keys_.clear();
      return true;
    }
    if (!Claim(*field, MessageBytes(*field))) return false;
    AppendTag(*field, kWireBytes);
    frames_.emplace_back(field->message);
    frames_.back().begin = wire_.size();
    return true;
  }
  bool Key(absl::string_view name) {
    if (frames_.back().is_flat) CloseFlat();
    if (frames_.back().is_map) return MapKey(name);
    const FieldForm* field = frames_.back().type->Find(name);
    if (field == nullptr && frames_.size() == 1) field = OpenFlat(name);
    if (field == nullptr) return RefuseName(name);
    Frame& frame = frames_.back();
    frame.field = field;
    if (frame.seen.test(field->index)) return Fail(absl::StrCat(Path(), ": the key comes twice"));
    frame.seen.set(field->index);
    return true;
  }
  void EndObject() {
    if (frames_.back().is_flat) CloseFlat();
    const Frame& frame = frames_.back();
    if (frames_.size() == 1) {
      if (root_.flat != nullptr) JoinInputs();
    } else if (!frame.is_map) {
      InsertSize(frame.begin);
    }
    frames_.pop_back();
  }
  bool StartArray() {
    const FieldForm* const target = Target();
    if (target != nullptr && target->type == FieldDescriptor::TYPE_MESSAGE && !target->is_map &&
        target->message->list != nullptr) {
      if (!StartObject()) return false;
      frames_.back().field = target->message->list;
      frames_.back().is_list = true;
    }
    Frame* const frame = frames_.empty() ? nullptr : &frames_.back();
    if (frame == nullptr || frame->in_array || frame->is_map || frame->field == nullptr ||
        !frame->field->is_list || frame->field->is_map) {
      return Refuse("a list");
    }
    frame->in_array = true;
    frame->index = 0;
    frame->filled.set(frame->field->index);
    if (frame->field->is_packed) {
      frame->tag_begin = wire_.size();
      AppendTag(*frame->field, kWireBytes);
      frame->list_begin = wire_.size();
    }
    return true;
  }
  void EndArray() {
    Frame& frame = frames_.back();
    frame.in_array = false;
    if (frame.field->is_packed && frame.index > 0) InsertSize(frame.list_begin);
    if (frame.field->is_packed && frame.index == 0) wire_.resize(frame.tag_begin);
    if (frame.is_list) EndObject();
  }

 private:
  struct Frame {
    using Fields = std::bitset<64>;

    explicit Frame(const MessageForm* of) : type(of) {}

    const MessageForm* type;
    const FieldForm* field = nullptr;  // whose value comes
    size_t begin = 0;                  // of the message in the bytes
    size_t tag_begin = 0;              // of a packed list
    size_t list_begin = 0;             // of its values
    bool in_array = false;
    bool is_map = false;   // the object is the map `field` of a message of this type
    bool is_list = false;  // the JSON has only the message's list
    bool is_flat = false;  // the message's fields stand in the request
    int index = 0;         // in the list
    Fields seen;
    Fields filled;
  };

  void AppendVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) wire_.push_back(static_cast<char>(value | 0x80));
    wire_.push_back(static_cast<char>(value));
  }
  void AppendTag(const FieldForm& field, WireKind kind) {
    AppendVarint(WireTag(field.number, kind));
  }
  // Puts the size of what begins there in front of it.
  void InsertSize(size_t begin) {
    const size_t end = wire_.size();
    AppendVarint(end - begin);
    const std::string size = wire_.substr(end);
    wire_.resize(end);
    wire_.insert(begin, size);
  }
  template <typename Real>
  void AppendReal(Real value) {
    char bytes[sizeof(Real)];
    std::memcpy(bytes, &value, sizeof(Real));
    wire_.append(bytes, sizeof(Real));
  }
  static uint64_t SignedVarint(int64_t value) { return static_cast<uint64_t>(value); }

  // The field that a scalar or an object would be put into; null where the JSON may have none.
  const FieldForm* Target() const {
    if (frames_.empty()) return nullptr;
    const Frame& frame = frames_.back();
    if (frame.field == nullptr || frame.is_map) return nullptr;
    if (frame.field->is_list && !frame.field->is_map && !frame.in_array) return nullptr;
    return frame.field;
  }

  // Turns to the message whose fields stand in the request, if it has this one. Other fields of the
  // request may come in between, so that its bytes are gathered apart.
  const FieldForm* OpenFlat(absl::string_view name) {
    const FieldForm* const field =
        root_.flat == nullptr ? nullptr : root_.flat->message->Find(name);
    if (field == nullptr) return nullptr;
    if (!flat_.has_value()) flat_.emplace(root_.flat->message).is_flat = true;
    frames_.back().field = nullptr;
    frames_.push_back(*flat_);
    wire_.swap(flat_wire_);
    return field;
  }
  void CloseFlat() {
    wire_.swap(flat_wire_);
    flat_ = frames_.back();
    frames_.pop_back();
  }
  // At the end of a request: only one of the forms may have a value. null is none.
  void JoinInputs() {
    const FieldForm& flat = *root_.flat;
    const Frame::Fields& filled = frames_.back().filled;
    std::vector<absl::string_view> names;
    if (filled.test(flat.index)) names.push_back(flat.name);
    if (root_.texts.has_value() && filled.test(root_.texts->index))
      names.push_back(root_.texts->name);
    if (!flat_wire_.empty()) names.push_back(flat_->field->name);
    if (names.size() > 1) {
      Fail(absl::StrCat(absl::StrJoin(names, ", "), ": expected one of them"));
    } else if (!flat_wire_.empty()) {
      if (!meter_.Take(MessageBytes(flat) + static_cast<int64_t>(flat_wire_.size())))
        status_ = meter_.NoMemory();
      AppendTag(flat, kWireBytes);
      AppendVarint(flat_wire_.size());
      wire_.append(flat_wire_);
    }
  }

  static int64_t MessageBytes(const FieldForm& field) {
    return kBytesPerMessage + 8 * static_cast<int64_t>(field.message->fields.size());
  }

  // Before a value is put into the field: that it may be, and that there is memory for it.
  bool Claim(const FieldForm& field, int64_t bytes) {
    if (!meter_.Take(bytes)) {
      status_ = meter_.NoMemory();
      return false;
    }
    Frame& frame = frames_.back();
    if (frame.is_flat && !std::exchange(flat_counted_, true) && !Count(*root_.flat)) return false;
    if (field.is_list) {
      ++frame.index;
      return Count(field);
    }
    if (field.oneof != nullptr) {
      const std::vector<FieldForm>& fields = frame.type->fields;
      for (size_t i = 0; i < fields.size(); ++i) {
        if (fields[i].oneof != field.oneof || !frame.filled.test(i)) continue;
        return Fail(
            absl::StrCat(Path(), ": ", fields[i].name, " is set already; expected one of them"));
      }
      frame.filled.set(field.index);
    }
    return true;
  }

  // Counts an element of a list as the outline of the message would (request_outline.h), so that a
  // request that is refused by its counts does not take the memory of others first.
  bool Count(const FieldForm& field) {
    if (limits_ == nullptr) return true;
    const Descriptor* const element = field.message == nullptr ? nullptr : field.message->type;
    const bool is_passage = frames_.back().type->type == v1::Query::descriptor() &&
                            field.number == v1::Query::kPassagesFieldNumber;
    if (element == v1::Query::descriptor()) {
      ++outline_.num_queries;
    } else if (element == v1::Sequence::descriptor() || is_passage) {
      ++outline_.num_sequences;
    } else if (element == nullptr && frames_.size() > 1) {
      ++outline_.num_words;
    } else {
      return CountEntry(field);
    }
    status_ = calls::CheckOutline(outline_, *limits_);
    return status_.ok();
  }
  // Counts stop strings and entries of maps, which are neither sequences nor words. Methods take
  // far fewer of them than words.
  bool CountEntry(const FieldForm& field) {
    if (limits_ == nullptr || ++outline_.num_entries <= limits_->max_request_tokens) return true;
    return Fail(absl::StrCat(field.name, ": more than ", limits_->max_request_tokens,
                             " entries, expected at most that"));
  }

  // Puts a value into the field. The values of a packed list have no tags.
  bool PutVarint(const FieldForm& field, uint64_t value) {
    if (!Claim(field, kBytesPerNumber)) return false;
    if (!field.is_packed) AppendTag(field, kWireVarint);
    AppendVarint(value);
    return true;
  }
  template <typename Real>
  bool PutReal(const FieldForm& field, Real value) {
    if (!Claim(field, kBytesPerNumber)) return false;
    if (!field.is_packed) AppendTag(field, sizeof(Real) == 4 ? kWireFixed32 : kWireFixed64);
    AppendReal(value);
    return true;
  }
  bool PutString(const FieldForm& field, absl::string_view value) {
    if (!Claim(field, kBytesPerString + static_cast<int64_t>(value.size()))) return false;
    AppendTag(field, kWireBytes);
    AppendVarint(value.size());
    wire_.append(value.data(), value.size());
    return true;
  }

  // The message that has only this text.
  bool PutText(const FieldForm& field, absl::string_view text) {
    const auto size = static_cast<int64_t>(text.size());
    if (!Claim(field, MessageBytes(field) + kBytesPerString + size)) return false;
    AppendTag(field, kWireBytes);
    const size_t begin = wire_.size();
    AppendTag(*field.message->text, kWireBytes);
    AppendVarint(text.size());
    wire_.append(text.data(), text.size());
    InsertSize(begin);
    return true;
  }
  bool ListOfOne(absl::string_view text) {
    if (frames_.empty() || frames_.back().is_map || !frames_.back().field->takes_text)
      return Refuse("a string");
    Frame& frame = frames_.back();
    frame.in_array = true;
    frame.index = 0;
    frame.filled.set(frame.field->index);
    const bool good = String(text, 0);
    frame.in_array = false;
    return good;
  }

  template <typename Text>
  bool SetNumber(const JsonNumber& number, const Text& text) {
    if (!frames_.empty() && frames_.back().is_map) return MapValue(number.real, text);
    const FieldForm* const field = Target();
    if (field == nullptr) return Refuse(absl::StrCat("the number ", text()));
    switch (field->type) {
      case FieldDescriptor::TYPE_INT32:
      case FieldDescriptor::TYPE_ENUM:
        if (!FitsInt32(number)) return Refuse(text());
        return PutVarint(*field, SignedVarint(*number.as_signed));
      case FieldDescriptor::TYPE_INT64:
        if (!number.as_signed.has_value()) return Refuse(text());
        return PutVarint(*field, SignedVarint(*number.as_signed));
      case FieldDescriptor::TYPE_UINT32:
        if (number.as_unsigned.value_or(UINT64_MAX) > UINT32_MAX) return Refuse(text());
        return PutVarint(*field, *number.as_unsigned);
      case FieldDescriptor::TYPE_UINT64:
        if (!number.as_unsigned.has_value()) return Refuse(text());
        return PutVarint(*field, *number.as_unsigned);
      case FieldDescriptor::TYPE_FLOAT:
        if (std::isfinite(number.real) && std::abs(number.real) >= kFloatLimit)
          return Refuse(text());
        return PutReal(*field, ToFloat(number.real));
      case FieldDescriptor::TYPE_DOUBLE:
        return PutReal(*field, number.real);
      default:
        return Refuse(absl::StrCat("the number ", text()));
    }
  }
  static bool FitsInt32(const JsonNumber& number) {
    return number.as_signed.has_value() &&
           *number.as_signed >= std::numeric_limits<int32_t>::min() &&
           *number.as_signed <= std::numeric_limits<int32_t>::max();
  }

  // protobuf's form has numbers as strings as well, and must for those that JSON's readers would
  // round.
  bool SetNumberFromText(absl::string_view text) {
    const auto found = [&text] { return absl::StrCat("'", Excerpt(text), "'"); };
    if (text.empty() || text.front() == ' ' || text.back() == ' ') return Refuse(found());
    const FieldDescriptor::Type type = Target()->type;
    const bool is_real =
        type == FieldDescriptor::TYPE_FLOAT || type == FieldDescriptor::TYPE_DOUBLE;
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
    return SetNumber(JsonNumberOf(number.real), found);
  }

  // The contract's maps are from int32 to float; MapValue() refuses others.
  bool MapKey(absl::string_view name) {
    Frame& frame = frames_.back();
    if (!meter_.Take(kBytesPerMessage + kBytesPerString + static_cast<int64_t>(name.size()))) {
      status_ = meter_.NoMemory();
      return false;
    }
    if (!CountEntry(*frame.field)) return false;
    if (!map_keys_.emplace(name).second) {
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
    const std::vector<FieldForm>& entry = frame.field->message->fields;
    if (entry[0].type != FieldDescriptor::TYPE_INT32 ||
        entry[1].type != FieldDescriptor::TYPE_FLOAT || !(std::abs(real) < kFloatLimit)) {
      return Refuse(text());
    }
    AppendTag(*frame.field, kWireBytes);
    const size_t begin = wire_.size();
    AppendTag(entry[0], kWireVarint);
    AppendVarint(SignedVarint(map_key_));
    AppendTag(entry[1], kWireFixed32);
    AppendReal(ToFloat(real));
    InsertSize(begin);
    return true;
  }

  std::string Path() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.is_map || frame.field == nullptr) continue;
      if (!frame.is_list) absl::StrAppend(&path, path.empty() ? "" : ".", frame.field->name);
      if (frame.in_array) {
        // The element of an inner frame has been counted already.
        absl::StrAppend(&path, "[", &frame == &frames_.back() ? frame.index : frame.index - 1, "]");
      }
    }
    return path;
  }

  static std::string Expected(const FieldForm& field, bool in_array) {
    if (field.is_map) return "an object of numbers";
    const auto shown = [&field](absl::string_view what) {
      return absl::StrCat(what, ", as in {\"", field.name, "\": ", ExampleOf(field), "}");
    };
    if (field.is_list && !in_array) return shown("a list");
    switch (field.type) {
      case FieldDescriptor::TYPE_INT32:
        return "a whole number of 32 bits";
      case FieldDescriptor::TYPE_INT64:
        return "a whole number of 64 bits";
      case FieldDescriptor::TYPE_UINT32:
        return "a whole number from 0 to 2^32 - 1";
      case FieldDescriptor::TYPE_UINT64:
        return "a whole number from 0 to 2^64 - 1";
      case FieldDescriptor::TYPE_FLOAT:
        return "a number in the range of float32";
      case FieldDescriptor::TYPE_DOUBLE:
        return "a number in the range of float64";
      case FieldDescriptor::TYPE_BOOL:
        return "true or false";
      case FieldDescriptor::TYPE_STRING:
        return "a string";
      case FieldDescriptor::TYPE_BYTES:
        return "a string in base64";
      case FieldDescriptor::TYPE_ENUM:
        return absl::StrCat("one of ", absl::StrJoin(ShortNames(*field.values), ", "));
      default:
        break;
    }
    if (field.message->list != nullptr) return shown("a list");
    return shown(field.message->text != nullptr ? "a string or an object" : "an object");
  }

  bool Refuse(absl::string_view found) {
    if (frames_.empty()) {
      return Fail(absl::StrCat("expected an object, as in ", ExampleOf(root_), ", found ", found));
    }
    const Frame& frame = frames_.back();
    return Fail(absl::StrCat(Path(), ": expected ", Expected(*frame.field, frame.in_array),
                             ", found ", found));
  }
  bool RefuseName(absl::string_view name) {
    Frame& frame = frames_.back();
    frame.field = nullptr;
    const std::string path = Path();
    const std::vector<absl::string_view> names = NamesOf(*frame.type);
    const absl::string_view similar = SimilarName(name, names);
    return Fail(absl::StrCat(
        path, path.empty() ? "" : ": ", "unknown field '", Excerpt(name), "'; ",
        similar.empty() ? "" : absl::StrCat("did you mean '", similar, "'? "), "expected one of ",
        absl::StrJoin(names, ", "), ", as in ", ExampleOf(*frame.type)));
  }
  bool Fail(const std::string& message) {
    status_ = absl::InvalidArgumentError(message);
    return false;
  }

  const calls::RequestLimits* const limits_;
  calls::RequestOutline outline_;  // the counts so far
  Meter meter_;
  const MessageForm& root_;
  std::string& wire_;
  std::vector<Frame> frames_;
  std::optional<Frame> flat_;  // of the message whose fields stand in the request, and its bytes
  std::string flat_wire_;
  bool flat_counted_ = false;
  std::set<std::string> map_keys_;  // of the innermost map: maps are of numbers
  int32_t map_key_ = 0;
  absl::Status status_;
};

}  // namespace

absl::Status ParseJsonMessage(const Descriptor& type, absl::string_view json, MemoryHold* memory,
                              std::string* wire, const calls::RequestLimits* limits) {
  // The reader holds a string that has escapes, and its copy.
  if (!memory->Grow(2 * static_cast<int64_t>(json.size()))) return memory->NoMemory();
  // The values of a tensor are not counted as words are.
  const bool has_words = type.file() == v1::Sequence::descriptor()->file();
  MessageReader reader(FormOf(type), has_words ? limits : nullptr, memory, wire);
  return ReadJsonBody(json, JsonErrors::kInOrder, [&reader](JsonReader* text) {
    text->Walk(&reader);
    return reader.Finish();
  });
}

absl::Status ParseJsonMessage(absl::string_view json, MemoryHold* memory, Message* message,
                              const calls::RequestLimits* limits) {
  std::string wire;
  absl::Status status = ParseJsonMessage(*message->GetDescriptor(), json, memory, &wire, limits);
  if (status.ok() && !message->ParseFromString(wire)) {
    status = absl::InvalidArgumentError("the request is too large for a message");
  }
  return status;
}

}  // namespace sru::server::rest
