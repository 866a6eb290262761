#include "server/translation/request_fields.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/utf8.h"
#include "server/base/interruption.h"
#include "server/rest/error_response.h"
#include "server/rest/route.h"

namespace sru::server::translation {
namespace {

using rest::Excerpt;
using rest::JsonReader;
using rest::MemoryHold;
using Kind = JsonReader::Kind;

// The memory of a value besides its bytes: a string in a list that grows, and perhaps a node of the
// map.
constexpr int64_t kValueBytes = 176;
constexpr int kFieldsUntilAsked = 4096;

absl::Status Reserve(absl::string_view body, absl::string_view separators, MemoryHold* memory) {
  const auto values = std::count_if(body.begin(), body.end(), [separators](char c) {
    return separators.find(c) != absl::string_view::npos;
  });
  const auto bytes = static_cast<int64_t>(2 * body.size());
  return memory->Grow(bytes + kValueBytes * (values + 1)) ? absl::OkStatus() : memory->NoMemory();
}

absl::Status FieldError(absl::string_view name, absl::string_view what) {
  return InvalidArgument(Excerpt(name), ": ", what);
}

absl::StatusOr<std::string> DecodeForm(absl::string_view name, absl::string_view text) {
  std::string spaced(text);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  std::optional<std::string> decoded = rest::PercentDecode(spaced);
  if (!decoded.has_value()) return FieldError(name, "expected two digits after each %");
  if (FindInvalidUtf8(*decoded) != decoded->size()) return FieldError(name, "expected UTF-8");
  return *std::move(decoded);
}

}  // namespace

absl::Status RequestFields::AddForm(absl::string_view form, MemoryHold* memory) {
  SRU_RETURN_UNLESS_OK(Reserve(form, "&", memory));
  int parts = 0;
  for (const absl::string_view part : absl::StrSplit(form, '&', absl::SkipEmpty())) {
    if (++parts % kFieldsUntilAsked == 0 && Interruption::Asked()) {
      return absl::CancelledError("the caller has left");
    }
    const std::pair<absl::string_view, absl::string_view> field =
        absl::StrSplit(part, absl::MaxSplits('=', 1));
    SRU_ASSIGN_OR_RETURN(const std::string name, DecodeForm(field.first, field.first));
    SRU_ASSIGN_OR_RETURN(std::string value, DecodeForm(name, field.second));
    Values& values = fields_[name];
    values.is_list = !values.values.empty();
    values.values.push_back(std::move(value));
  }
  return absl::OkStatus();
}

absl::Status RequestFields::AddJson(absl::string_view json, MemoryHold* memory) {
  SRU_RETURN_UNLESS_OK(Reserve(json, ",", memory));
  return rest::ReadJsonBody(json, rest::JsonErrors::kSyntaxFirst,
                            [this](JsonReader* reader) { return ReadObject(reader); });
}

absl::Status RequestFields::ReadObject(JsonReader* reader) {
  if (reader->Next() != Kind::kObject) {
    return InvalidArgument("the body: expected a JSON object");
  }
  reader->EnterObject();
  absl::string_view key;
  while (reader->NextKey(&key)) {
    const std::string name(key);
    if (has(name)) return FieldError(name, "the key comes twice");
    if (reader->Next() == Kind::kNull) {
      reader->ReadNull();
      continue;
    }
    Values& field = fields_[name];
    field.is_list = reader->Next() == Kind::kArray;
    if (!field.is_list) {
      ReadValue(reader, &field);
      continue;
    }
    reader->EnterArray();
    while (reader->NextElement()) ReadValue(reader, &field);
  }
  return absl::OkStatus();
}

void RequestFields::ReadValue(JsonReader* reader, Values* field) {
  absl::string_view text;
  std::string scratch;
  bool flag = false;
  const Kind kind = reader->Next();
  if (kind == Kind::kString) {
    if (reader->ReadString(&scratch, &text)) field->values.emplace_back(text);
  } else if (kind == Kind::kNumber) {
    if (reader->ReadNumber(&text)) field->values.emplace_back(text == "-0" ? "0" : text);
  } else if (kind == Kind::kBool) {
    if (reader->ReadBool(&flag)) field->values.emplace_back(flag ? "true" : "false");
  } else {
    reader->Skip();
    if (field->wrong != nullptr) return;
    field->wrong = kind == Kind::kObject ? "an object" : kind == Kind::kArray ? "a list" : "null";
    field->wrong_at = field->values.size();
  }
}

absl::Status RequestFields::AddBody(absl::string_view body, absl::string_view content_type,
                                    MemoryHold* memory) {
  return rest::MediaType(content_type) == rest::kJsonContentType ? AddJson(body, memory)
                                                                 : AddForm(body, memory);
}

const RequestFields::Values* RequestFields::Find(const std::string& name) {
  const auto found = fields_.find(name);
  if (found == fields_.end()) return nullptr;
  const Values& field = found->second;
  if (field.wrong != nullptr && status_.ok()) {
    status_ = FieldError(
        name, absl::StrCat(field.is_list ? absl::StrCat("value ", field.wrong_at + 1, ": ") : "",
                           "expected a text, a number, true or false",
                           field.is_list ? "" : ", or a list of them", ", found ", field.wrong));
  }
  return &field;
}

std::vector<std::string> RequestFields::All(const std::string& name) {
  const Values* const field = Find(name);
  return field == nullptr ? std::vector<std::string>() : field->values;
}

std::string RequestFields::Last(const std::string& name) {
  const Values* const field = Find(name);
  return field == nullptr || field->values.empty() ? "" : field->values.back();
}

bool RequestFields::is_list(const std::string& name) const {
  const auto found = fields_.find(name);
  return found != fields_.end() && found->second.is_list;
}

bool RequestFields::Flag(const std::string& name, bool otherwise) {
  const std::string value = Last(name);
  if (value.empty()) return otherwise;
  if (value == "1" || value == "true") return true;
  if (value != "0" && value != "false" && status_.ok()) {
    status_ = FieldError(
        name, absl::StrCat("expected 0, 1, true or false, found '", Excerpt(value), "'"));
  }
  return false;
}

}  // namespace sru::server::translation
