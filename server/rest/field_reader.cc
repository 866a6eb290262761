#include "server/rest/field_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/status.h"
#include "server/base/advice.h"
#include "server/rest/json_reader.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

// The most bytes that a tree of values takes for each byte of its text. Lists of empty lists are
// the worst: three bytes of text become a value, the list that it owns and, while the outer list
// grows, a second place for the value.
constexpr int64_t kBytesPerByte = 40;
constexpr size_t kMostDepth = 4;

// Builds the tree of a value, until a key comes twice or the nesting is too deep. Each step takes
// constant time, or logarithmic for a key: a hostile body must not cost more than its bytes.
absl::Status BuildTree(JsonReader* reader, size_t depth, json* tree) {  // NOLINT(misc-no-recursion)
  if (depth > kMostDepth) return absl::InvalidArgumentError("the body is nested too deeply");
  using Kind = JsonReader::Kind;
  absl::string_view text;
  std::string scratch;
  bool flag = false;
  switch (reader->Next()) {
    case Kind::kObject:
      *tree = json::object();
      reader->EnterObject();
      while (reader->NextKey(&text)) {
        const auto [place, is_new] = tree->emplace(std::string(text), nullptr);
        if (!is_new) return InvalidArgument(Excerpt(text), ": the key comes twice");
        SRU_RETURN_UNLESS_OK(BuildTree(reader, depth + 1, &*place));
      }
      break;
    case Kind::kArray:
      *tree = json::array();
      reader->EnterArray();
      while (reader->NextElement()) {
        SRU_RETURN_UNLESS_OK(BuildTree(reader, depth + 1, &tree->emplace_back()));
      }
      break;
    case Kind::kString:
      if (reader->ReadString(&scratch, &text)) *tree = std::string(text);
      break;
    case Kind::kNumber:
      if (reader->ReadNumber(&text)) {
        const JsonNumber number = ParseJsonNumber(text);
        *tree = number.as_unsigned.has_value() ? json(*number.as_unsigned)
                : number.as_signed.has_value() ? json(*number.as_signed)
                                               : json(number.real);
      }
      break;
    case Kind::kBool:
      if (reader->ReadBool(&flag)) *tree = flag;
      break;
    default:
      reader->Skip();  // null, or no value
  }
  return absl::OkStatus();
}

// By way of a double, which has every int32: json compares 2^64 - 1 as if it were -1.
bool IsIntegerIn(const json& value, int32_t least, int32_t most) {
  return value.is_number_integer() && value.get<double>() >= least && value.get<double>() <= most;
}

}  // namespace

absl::Status ParseTree(absl::string_view body, MemoryHold* memory, json* tree) {
  if (!memory->Grow(kBytesPerByte * static_cast<int64_t>(body.size()))) return memory->NoMemory();
  SRU_RETURN_UNLESS_OK(ReadJsonBody(body, JsonErrors::kSyntaxFirst, [tree](JsonReader* reader) {
    return BuildTree(reader, 0, tree);
  }));
  if (tree->is_object()) return absl::OkStatus();
  return InvalidArgument("expected an object, found ", Shown(*tree));
}

std::string Shown(const json& value) {
  if (value.is_structured()) return value.is_array() ? "a list" : "an object";
  if (value.is_number() && std::isinf(value.get<double>())) return "a number out of range";
  return Excerpt(JsonText(value));
}

bool IsTokenId(const json& value) {
  return IsIntegerIn(value, std::numeric_limits<int32_t>::min(), FieldReader::kMost);
}

void FieldReader::Fail(const std::string& name, const std::string& message) {
  if (!error_.status.ok()) return;
  error_ = RestError(absl::InvalidArgumentError(absl::StrCat(prefix_, name, ": ", message)));
  error_.param = prefix_ + name;
}

void FieldReader::Wrong(const std::string& name, absl::string_view expected, const json& found) {
  Fail(name, absl::StrCat("expected ", expected, ", found ", Shown(found)));
}

const json* FieldReader::Take(const std::string& name) {
  known_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

int32_t FieldReader::Integer(const std::string& name, int32_t fallback, int32_t least,
                             int32_t most) {
  const json* const value = Take(name);
  if (value == nullptr) return fallback;
  if (IsIntegerIn(*value, least, most)) return value->get<int32_t>();
  Wrong(name, absl::StrCat("a whole number from ", least, " to ", most), *value);
  return fallback;
}

float FieldReader::Number(const std::string& name, double fallback, double least, double most) {
  const json* const value = Take(name);
  const double number = value != nullptr && value->is_number() ? value->get<double>() : NAN;
  if (number >= least && number <= most) return static_cast<float>(number);
  if (value != nullptr) Wrong(name, absl::StrCat("a number from ", least, " to ", most), *value);
  return static_cast<float>(fallback);
}

bool FieldReader::Boolean(const std::string& name, bool fallback) {
  const json* const value = Take(name);
  if (value != nullptr && value->is_boolean()) return value->get<bool>();
  if (value != nullptr) Wrong(name, "true or false", *value);
  return fallback;
}

std::string FieldReader::String(const std::string& name) {
  const json* const value = Take(name);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  if (value != nullptr) Wrong(name, "a string", *value);
  return "";
}

std::string FieldReader::Needed(const std::string& name) {
  if (Take(name) == nullptr) Fail(name, "expected a string, found none");
  return String(name);
}

std::string FieldReader::OneOf(const std::string& name,
                               std::initializer_list<const char*> strings) {
  const json* const value = Take(name);
  if (value == nullptr) return *strings.begin();
  for (const char* const one : strings) {
    if (*value == one) return one;
  }
  const auto quoted = [](std::string* out, const char* one) {
    absl::StrAppend(out, "\"", one, "\"");
  };
  Wrong(name, absl::StrJoin(strings, " or ", quoted), *value);
  return *strings.begin();
}

FieldReader FieldReader::Object(const std::string& name) {
  static const auto* const kNone = new json(json::object());
  const json* const value = Take(name);
  const bool is_object = value != nullptr && value->is_object();
  if (value != nullptr && !is_object) Wrong(name, "an object", *value);
  return FieldReader(is_object ? *value : *kNone, absl::StrCat(prefix_, name, "."));
}

void FieldReader::Adopt(FieldReader* inner) {
  RestError error = inner->End();
  if (error_.status.ok()) error_ = std::move(error);
}

std::vector<std::string> FieldReader::Texts(const std::string& name, size_t most,
                                            absl::string_view advice, bool* is_list) {
  constexpr char kExpected[] = "expected a string or a list of strings";
  const json* const value = Take(name);
  *is_list = value != nullptr && value->is_array();
  if (value != nullptr && value->is_string()) return {value->get<std::string>()};
  if (!*is_list || value->empty()) {
    const std::string found = value == nullptr ? "none" : *is_list ? "[]" : Shown(*value);
    Fail(name, absl::StrCat(kExpected, ", found ", found));
    return {};
  }
  if (value->size() > most) {
    Fail(name, absl::StrCat("expected at most ", most,
                            " texts (--max_sequences_per_request), found ", value->size()));
    return {};
  }
  std::vector<std::string> texts;
  for (const json& text : *value) {
    if (text.is_string()) {
      texts.push_back(text.get<std::string>());
      continue;
    }
    const bool is_ids =
        IsTokenId(text) || (text.is_array() && !text.empty() && IsTokenId(text.front()));
    Fail(name, is_ids ? absl::StrCat(kExpected, ", found token ids", advice)
                      : absl::StrCat(kExpected, ", found ", Shown(text), " at ", name, "[",
                                     texts.size(), "]"));
    return {};
  }
  return texts;
}

void FieldReader::RefuseUnless(const std::string& name, std::initializer_list<json> nothing) {
  const json* const value = Take(name);
  if (value == nullptr || std::find(nothing.begin(), nothing.end(), *value) != nothing.end())
    return;
  Fail(name, absl::StrCat(
                 "not supported, unless it is ",
                 absl::StrJoin(nothing, " or ",
                               [](std::string* out, const json& one) { out->append(Shown(one)); }),
                 ", found ", Shown(*value)));
}

RestError FieldReader::End() {
  for (const auto& item : object_.items()) {
    if (known_.count(item.key()) > 0) continue;
    Fail(Excerpt(item.key()), "unknown field; docs/rest.md has those that are supported");
  }
  return error_;
}

RestError InFieldsOf(const FieldNames& names, bool is_list, absl::string_view advice,
                     RestError error) {
  absl::Status& status = error.status;
  status = WithAdvice(status, advice);
  const std::string message(status.message());
  const absl::string_view path = absl::string_view(message).substr(0, message.find(": "));
  if (path.size() == message.size()) return error;
  for (const auto& [theirs, ours] : names) {
    absl::string_view rest = path;
    if (!absl::ConsumePrefix(&rest, theirs)) continue;
    if (!rest.empty() && rest.front() != '.' && rest.front() != '[') continue;
    if (!is_list) absl::ConsumePrefix(&rest, "[0]");
    absl::ConsumeSuffix(&rest, ".text");
    error.param = std::string(ours);
    status = Reworded(status, absl::StrCat(ours, rest, message.substr(path.size())));
    break;
  }
  return error;
}

}  // namespace sru::server::rest
