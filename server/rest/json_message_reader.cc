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
#include "server/rest/json_message.h"
#include "server/rest/json_message_form.h"
#include "server/rest/json_reader.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

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

// Writes the bytes of a message while its JSON is read. Calls are nested as deep as the message's
// type, whatever the text. Functions return false once nothing more is to be read: `status_` or the
// reader of the text says why.
// NOLINTBEGIN(misc-no-recursion)
class MessageReader {
 public:
  MessageReader(const MessageForm& root, JsonReader* json, const calls::RequestLimits* limits,
                MemoryHold* memory, std::string* wire)
      : root_{&root},
        flat_{root.flat == nullptr ? nullptr : root.flat->message},
        json_(*json),
        limits_(limits),
        meter_(memory),
        wire_(*wire) {}

  absl::Status Read() {
    const bool good = json_.Next() == Kind::kObject ? ReadFields(&root_) : RefuseValue();
    if (good && flat_.type != nullptr) JoinInputs();
    if (status_.ok() && !meter_.Settle()) status_ = meter_.NoMemory();
    return status_;
  }

 private:
  using Kind = JsonReader::Kind;
  using Fields = std::bitset<64>;

  // A message that is being read.
  struct Level {
    const MessageForm* type;
    Fields seen = {};
    Fields filled = {};
  };
  // A step of the path to the value that is being read.
  struct Step {
    const FieldForm* field;
    bool is_named;   // false: the JSON has only the message's list
    int index = -1;  // in the list; -1: in none
  };

  bool ReadFields(Level* level) {
    absl::string_view name;
    json_.EnterObject();
    while (json_.NextName(&name)) {
      if (const FieldForm* const field = level->type->Find(name)) {
        if (!ReadField(level, *field)) return false;
        continue;
      }
      const bool may_be_flat = level == &root_ && flat_.type != nullptr;
      const FieldForm* const field = may_be_flat ? flat_.type->Find(name) : nullptr;
      if (field == nullptr) return RefuseName(*level->type, name);
      // Other fields of the request may come in between, so its bytes are gathered apart.
      wire_.swap(flat_wire_);
      if (!ReadField(&flat_, *field)) return false;
      wire_.swap(flat_wire_);
      last_flat_ = field;
    }
    return json_.ok();
  }

  bool ReadField(Level* level, const FieldForm& field, bool is_named = true) {
    Level* const outer = std::exchange(level_, level);
    path_.push_back({&field, is_named});
    if (level->seen.test(field.index)) return Fail(absl::StrCat(Path(), ": the key comes twice"));
    level->seen.set(field.index);
    if (is_named && !json_.ReadColon()) return false;
    if (!ReadFieldValue(field)) return false;
    path_.pop_back();
    level_ = outer;
    return true;
  }

  bool ReadFieldValue(const FieldForm& field) {
    const Kind kind = json_.Next();
    if (kind == Kind::kNull) return json_.ReadNull();  // as if it were not there
    if (field.is_map) return kind == Kind::kObject ? ReadMap(field) : RefuseValue();
    if (!field.is_list) return ReadValue(field);
    const bool is_list_of_one = kind == Kind::kString && field.takes_text;
    if (kind != Kind::kArray && !is_list_of_one) return RefuseValue();
    path_.back().index = 0;
    level_->filled.set(field.index);
    return is_list_of_one ? ReadValue(field) : ReadList(field);
  }

  bool ReadList(const FieldForm& field) {
    const size_t tag_begin = wire_.size();
    if (field.is_packed) AppendTag(field, kWireBytes);
    const size_t begin = wire_.size();
    json_.EnterArray();
    while (json_.NextElement()) {
      if (!ReadValue(field)) return false;
      ++path_.back().index;
    }
    if (field.is_packed && wire_.size() > begin) InsertSize(begin);
    if (field.is_packed && path_.back().index == 0) wire_.resize(tag_begin);
    return json_.ok();
  }

  // Reads a value of the field, or of its list.
  bool ReadValue(const FieldForm& field) {
    const bool is_message = field.type == FieldDescriptor::TYPE_MESSAGE;
    absl::string_view text;
    bool flag = false;
    switch (json_.Next()) {
      case Kind::kObject:
        return is_message ? ReadMessage(field) : RefuseValue();
      case Kind::kArray:
        return is_message && field.message->list != nullptr ? ReadMessage(field) : RefuseValue();
      case Kind::kString:
        return json_.ReadString(&scratch_, &text) && PutFromString(field, text);
      case Kind::kNumber: {
        if (!json_.ReadNumber(&text)) return false;
        const JsonNumber number = ParseJsonNumber(text);
        return std::isinf(number.real) ? Refuse(Excerpt(number.text))
                                       : PutNumber(field, number, "");
      }
      case Kind::kBool:
        if (field.type != FieldDescriptor::TYPE_BOOL) return RefuseValue();
        return json_.ReadBool(&flag) && PutVarint(field, flag ? 1 : 0);
      default:
        return RefuseValue();
    }
  }

  // Reads an object, or the only list of such a message.
  bool ReadMessage(const FieldForm& field) {
    if (!Claim(field, MessageBytes(field))) return false;
    AppendTag(field, kWireBytes);
    const size_t begin = wire_.size();
    Level level{field.message};
    const bool good = json_.Next() == Kind::kObject
                          ? ReadFields(&level)
                          : ReadField(&level, *field.message->list, /*is_named=*/false);
    InsertSize(begin);
    return good;
  }

  // The contract's maps are from int32 to float; others are refused.
  bool ReadMap(const FieldForm& field) {
    const std::vector<FieldForm>& entry = field.message->fields;
    const bool is_known = entry[0].type == FieldDescriptor::TYPE_INT32 &&
                          entry[1].type == FieldDescriptor::TYPE_FLOAT;
    std::set<std::string> names;
    absl::string_view name;
    absl::string_view text;
    json_.EnterObject();
    while (json_.NextName(&name)) {
      int32_t key = 0;
      if (!Take(kBytesPerMessage + kBytesPerString + static_cast<int64_t>(name.size())) ||
          !CountEntry(field)) {
        return false;
      }
      if (!names.emplace(name).second) {
        return Fail(absl::StrCat(Path(), ": the key '", Excerpt(name), "' comes twice"));
      }
      if (!absl::SimpleAtoi(name, &key) || name.front() == ' ' || name.back() == ' ') {
        return Fail(absl::StrCat(Path(), ": expected whole numbers of 32 bits as keys, found '",
                                 Excerpt(name), "'"));
      }
      if (!json_.ReadColon()) return false;
      if (json_.Next() != Kind::kNumber) return RefuseValue();
      if (!json_.ReadNumber(&text)) return false;
      const JsonNumber number = ParseJsonNumber(text);
      if (!is_known || !(std::abs(number.real) < kFloatLimit)) return Refuse(Excerpt(number.text));
      AppendTag(field, kWireBytes);
      const size_t begin = wire_.size();
      AppendTag(entry[0], kWireVarint);
      AppendVarint(static_cast<uint64_t>(key));
      AppendTag(entry[1], kWireFixed32);
      AppendReal(ToFloat(number.real));
      InsertSize(begin);
    }
    return json_.ok();
  }

  // At the end of a request: only one of the forms may have a value. null is none.
  void JoinInputs() {
    const FieldForm& flat = *root_.type->flat;
    const std::optional<FieldForm>& texts = root_.type->texts;
    std::vector<absl::string_view> names;
    if (root_.filled.test(flat.index)) names.push_back(flat.name);
    if (texts.has_value() && root_.filled.test(texts->index)) names.push_back(texts->name);
    if (!flat_wire_.empty()) names.push_back(last_flat_->name);
    if (names.size() > 1) {
      Fail(absl::StrCat(absl::StrJoin(names, ", "), ": expected one of them"));
    } else if (!flat_wire_.empty() &&
               Take(MessageBytes(flat) + static_cast<int64_t>(flat_wire_.size()))) {
      AppendBytes(flat, flat_wire_);
    }
  }

  void AppendVarint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) wire_.push_back(static_cast<char>(value | 0x80));
    wire_.push_back(static_cast<char>(value));
  }
  void AppendTag(const FieldForm& field, WireKind kind) {
    AppendVarint(WireTag(field.number, kind));
  }
  void AppendBytes(const FieldForm& field, absl::string_view bytes) {
    AppendTag(field, kWireBytes);
    AppendVarint(bytes.size());
    wire_.append(bytes.data(), bytes.size());
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

  static int64_t MessageBytes(const FieldForm& field) {
    return kBytesPerMessage + 8 * static_cast<int64_t>(field.message->fields.size());
  }

  bool Take(int64_t bytes) {
    if (!meter_.Take(bytes)) status_ = meter_.NoMemory();
    return status_.ok();
  }

  // Before a value is put into the field: that it may be, and that there is memory for it.
  bool Claim(const FieldForm& field, int64_t bytes) {
    if (!Take(bytes)) return false;
    const bool is_first = level_ == &flat_ && !std::exchange(is_flat_counted_, true);
    if (is_first && !Count(*root_.type->flat)) return false;
    if (field.is_list) return Count(field);
    if (field.oneof != nullptr) {
      for (const FieldForm& other : level_->type->fields) {
        if (other.oneof != field.oneof || !level_->filled.test(other.index)) continue;
        return Fail(
            absl::StrCat(Path(), ": ", other.name, " is set already; expected one of them"));
      }
      level_->filled.set(field.index);
    }
    return true;
  }

  // Counts an element of a list as the outline of the message would (request_outline.h), so that a
  // request that is refused by its counts does not take the memory of others first.
  bool Count(const FieldForm& field) {
    if (limits_ == nullptr) return true;
    const Descriptor* const element = field.message == nullptr ? nullptr : field.message->type;
    const bool is_passage = level_->type->type == v1::Query::descriptor() &&
                            field.number == v1::Query::kPassagesFieldNumber;
    if (element == v1::Query::descriptor()) {
      ++outline_.num_queries;
    } else if (element == v1::Sequence::descriptor() || is_passage) {
      ++outline_.num_sequences;
    } else if (element == nullptr && level_ != &root_) {
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
    AppendBytes(field, value);
    return true;
  }
  // The message that has only this text.
  bool PutText(const FieldForm& field, absl::string_view text) {
    const auto size = static_cast<int64_t>(text.size());
    if (!Claim(field, MessageBytes(field) + kBytesPerString + size)) return false;
    AppendTag(field, kWireBytes);
    const size_t begin = wire_.size();
    AppendBytes(*field.message->text, text);
    InsertSize(begin);
    return true;
  }

  bool PutFromString(const FieldForm& field, absl::string_view text) {
    if (field.message != nullptr && field.message->text != nullptr) return PutText(field, text);
    switch (field.type) {
      case FieldDescriptor::TYPE_STRING:
        return PutString(field, text);
      case FieldDescriptor::TYPE_BYTES: {
        // Both alphabets, with or without padding.
        const bool web_safe = text.find_first_of("-_") != absl::string_view::npos;
        std::string bytes;
        if (!(web_safe ? absl::WebSafeBase64Unescape(text, &bytes)
                       : absl::Base64Unescape(text, &bytes))) {
          return Refuse("something else");
        }
        return PutString(field, bytes);
      }
      case FieldDescriptor::TYPE_ENUM: {
        const EnumValueDescriptor* const value = FindValue(*field.values, text);
        if (value == nullptr) return Refuse(absl::StrCat("'", Excerpt(text), "'"));
        return PutVarint(field, static_cast<uint64_t>(value->number()));
      }
      case FieldDescriptor::TYPE_BOOL:
      case FieldDescriptor::TYPE_MESSAGE:
        return Refuse("a string");
      default:
        return PutNumberFromString(field, text);
    }
  }

  // protobuf's form has numbers as strings as well, and must for those that JSON's readers would
  // round.
  bool PutNumberFromString(const FieldForm& field, absl::string_view text) {
    const bool is_real =
        field.type == FieldDescriptor::TYPE_FLOAT || field.type == FieldDescriptor::TYPE_DOUBLE;
    JsonNumber number;
    int64_t as_signed = 0;
    uint64_t as_unsigned = 0;
    bool good = !text.empty() && text.front() != ' ' && text.back() != ' ';
    if (is_real && (text == "NaN" || text == "Infinity" || text == "-Infinity")) {
      number.real = text == "NaN" ? std::numeric_limits<double>::quiet_NaN()
                                  : std::numeric_limits<double>::infinity();
      if (text.front() == '-') number.real = -number.real;
    } else if (!is_real && absl::SimpleAtoi(text, &as_signed)) {
      number.as_signed = as_signed;
      if (as_signed >= 0) number.as_unsigned = static_cast<uint64_t>(as_signed);
    } else if (!is_real && absl::SimpleAtoi(text, &as_unsigned)) {
      number.as_unsigned = as_unsigned;
    } else {
      good = good && absl::SimpleAtod(text, &number.real) && std::isfinite(number.real);
      number = JsonNumberOf(number.real);
    }
    number.text = text;
    return good ? PutNumber(field, number, "'") : Refuse(absl::StrCat("'", Excerpt(text), "'"));
  }

  // `quote`: around the number, as errors show it.
  bool PutNumber(const FieldForm& field, const JsonNumber& number, absl::string_view quote) {
    const auto refuse = [&](absl::string_view what = "") {
      return Refuse(absl::StrCat(what, quote, Excerpt(number.text), quote));
    };
    switch (field.type) {
      case FieldDescriptor::TYPE_INT32:
      case FieldDescriptor::TYPE_ENUM:
        if (number.as_signed.value_or(0) != static_cast<int32_t>(number.as_signed.value_or(0))) {
          return refuse();
        }
        [[fallthrough]];
      case FieldDescriptor::TYPE_INT64:
        if (!number.as_signed.has_value()) return refuse();
        return PutVarint(field, static_cast<uint64_t>(*number.as_signed));
      case FieldDescriptor::TYPE_UINT32:
        if (number.as_unsigned.value_or(0) > UINT32_MAX) return refuse();
        [[fallthrough]];
      case FieldDescriptor::TYPE_UINT64:
        return number.as_unsigned.has_value() ? PutVarint(field, *number.as_unsigned) : refuse();
      case FieldDescriptor::TYPE_FLOAT:
        if (std::isfinite(number.real) && std::abs(number.real) >= kFloatLimit) return refuse();
        return PutReal(field, ToFloat(number.real));
      case FieldDescriptor::TYPE_DOUBLE:
        return PutReal(field, number.real);
      default:
        return refuse("the number ");
    }
  }

  std::string Path() const {
    std::string path;
    for (const Step& step : path_) {
      if (step.is_named) absl::StrAppend(&path, path.empty() ? "" : ".", step.field->name);
      if (step.index >= 0) absl::StrAppend(&path, "[", step.index, "]");
    }
    return path;
  }

  static std::string Expected(const FieldForm& field, bool in_array) {
    static constexpr std::pair<FieldDescriptor::Type, const char*> kScalars[] = {
        {FieldDescriptor::TYPE_INT32, "a whole number of 32 bits"},
        {FieldDescriptor::TYPE_INT64, "a whole number of 64 bits"},
        {FieldDescriptor::TYPE_UINT32, "a whole number from 0 to 2^32 - 1"},
        {FieldDescriptor::TYPE_UINT64, "a whole number from 0 to 2^64 - 1"},
        {FieldDescriptor::TYPE_FLOAT, "a number in the range of float32"},
        {FieldDescriptor::TYPE_DOUBLE, "a number in the range of float64"},
        {FieldDescriptor::TYPE_BOOL, "true or false"},
        {FieldDescriptor::TYPE_STRING, "a string"},
        {FieldDescriptor::TYPE_BYTES, "a string in base64"}};
    if (field.is_map) return "an object of numbers";
    const auto shown = [&field](absl::string_view what) {
      return absl::StrCat(what, ", as in {\"", field.name, "\": ", ExampleOf(field), "}");
    };
    if (field.is_list && !in_array) return shown("a list");
    if (field.type == FieldDescriptor::TYPE_ENUM) {
      return absl::StrCat("one of ", absl::StrJoin(ShortNames(*field.values), ", "));
    }
    for (const auto& [type, expected] : kScalars) {
      if (type == field.type) return expected;
    }
    if (field.message->list != nullptr) return shown("a list");
    return shown(field.message->text != nullptr ? "a string or an object" : "an object");
  }

  // Refuses the value that comes.
  bool RefuseValue() {
    absl::string_view text;
    bool flag = false;
    switch (json_.Next()) {
      case Kind::kObject:
        return Refuse("an object");
      case Kind::kArray:
        return Refuse("a list");
      case Kind::kString:
        return json_.ReadString(&scratch_, &text) && Refuse("a string");
      case Kind::kNumber:
        return json_.ReadNumber(&text) &&
               Refuse(absl::StrCat(std::isinf(ParseJsonNumber(text).real) ? "" : "the number ",
                                   Excerpt(ParseJsonNumber(text).text)));
      case Kind::kBool:
        return json_.ReadBool(&flag) && Refuse(flag ? "true" : "false");
      case Kind::kNull:
        return json_.ReadNull() && Refuse("null");
      case Kind::kOther:
        return json_.Skip();  // which says what is wrong
    }
    return false;
  }
  bool Refuse(absl::string_view found) {
    if (path_.empty()) {
      return Fail(
          absl::StrCat("expected an object, as in ", ExampleOf(*root_.type), ", found ", found));
    }
    return Fail(absl::StrCat(Path(), ": expected ",
                             Expected(*path_.back().field, path_.back().index >= 0), ", found ",
                             found));
  }
  bool RefuseName(const MessageForm& type, absl::string_view name) {
    const std::string path = Path();
    const std::vector<absl::string_view> names = NamesOf(type);
    const absl::string_view similar = SimilarName(name, names);
    return Fail(
        absl::StrCat(path, path.empty() ? "" : ": ", "unknown field '", Excerpt(name), "'; ",
                     similar.empty() ? "" : absl::StrCat("did you mean '", similar, "'? "),
                     "expected one of ", absl::StrJoin(names, ", "), ", as in ", ExampleOf(type)));
  }
  bool Fail(const std::string& message) {
    status_ = absl::InvalidArgumentError(message);
    return false;
  }

  Level root_;
  // The message whose fields stand in the request, its bytes, and the last of these fields.
  Level flat_;
  std::string flat_wire_;
  const FieldForm* last_flat_ = nullptr;
  bool is_flat_counted_ = false;
  Level* level_ = &root_;  // the innermost one
  std::vector<Step> path_;
  JsonReader& json_;
  const calls::RequestLimits* const limits_;
  calls::RequestOutline outline_;  // the counts so far
  Meter meter_;
  std::string& wire_;
  std::string scratch_;
  absl::Status status_;
};
// NOLINTEND(misc-no-recursion)

}  // namespace

absl::Status ParseJsonMessage(const Descriptor& type, absl::string_view json, MemoryHold* memory,
                              std::string* wire, const calls::RequestLimits* limits) {
  // The reader holds a string that has escapes, and its copy.
  if (!memory->Grow(2 * static_cast<int64_t>(json.size()))) return memory->NoMemory();
  // The values of a tensor are not counted as words are.
  const bool has_words = type.file() == v1::Sequence::descriptor()->file();
  return ReadJsonBody(json, JsonErrors::kInOrder, [&](JsonReader* text) {
    return MessageReader(FormOf(type), text, has_words ? limits : nullptr, memory, wire).Read();
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
