#include "client/commands/printer.h"

#include <cmath>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/command_line.h"
#include "google/protobuf/descriptor.h"

namespace sru::client {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// The value of a field; of one that is repeated, that at `i`.
Json ValueJson(const Message& message, const FieldDescriptor* field, int i) {
  const Reflection& values = *message.GetReflection();
  const bool repeated = field->is_repeated();
  const auto value = [&](auto get, auto get_repeated) {
    return repeated ? (values.*get_repeated)(message, field, i) : (values.*get)(message, field);
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return value(&Reflection::GetInt32, &Reflection::GetRepeatedInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return value(&Reflection::GetInt64, &Reflection::GetRepeatedInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Exact(value(&Reflection::GetFloat, &Reflection::GetRepeatedFloat));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return value(&Reflection::GetDouble, &Reflection::GetRepeatedDouble);
    case FieldDescriptor::CPPTYPE_BOOL:
      return value(&Reflection::GetBool, &Reflection::GetRepeatedBool);
    case FieldDescriptor::CPPTYPE_STRING:
      return value(&Reflection::GetString, &Reflection::GetRepeatedString);
    case FieldDescriptor::CPPTYPE_ENUM:
      return NameOf(*value(&Reflection::GetEnum, &Reflection::GetRepeatedEnum));
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Json json = MessageJson(repeated ? values.GetRepeatedMessage(message, field, i)
                                       : values.GetMessage(message, field));
      // It is nothing but a list.
      return field->message_type() == v1::Candidates::descriptor() ? json["candidates"] : json;
    }
    default:
      return nullptr;  // no answer has one
  }
}

}  // namespace

Printer::Printer(const Command& command, bool json, std::vector<TextTable::Column> columns)
    : command_(command),
      json_(json),
      has_table_(!columns.empty()),
      table_(std::move(columns), &std::cout) {}

void Printer::Object(const Json& object) { std::cout << Dump(object) << "\n"; }

void Printer::Flush() {
  if (has_table_ && !json_) table_.Flush();
  std::cout.flush();
}

Printer::~Printer() {
  if (2 * unknown_ <= tokens_) return;
  Failure(command_,
          absl::StrCat("warning: the model's vocabulary does not have ", unknown_, " of ", tokens_,
                       " words, so the answers say little; is it the right model for these "
                       "texts?"));
}

std::string Fixed(double value, int digits) { return absl::StrFormat("%.*f", digits, value); }

std::string Quoted(absl::string_view text) { return absl::StrCat("'", Printable(text), "'"); }

std::string CandidateList(const v1::Candidates& candidates) {
  return absl::StrJoin(candidates.candidates(), "  ",
                       [](std::string* out, const v1::Candidate& candidate) {
                         absl::StrAppend(out, Quoted(candidate.text()), " ",
                                         Fixed(100 * std::exp(candidate.log_prob()), 1), "%");
                       });
}

double Bits(double log_prob) { return log_prob == 0 ? 0 : -log_prob / std::log(2); }

std::string TokenCell(int tokens, bool truncated, int unknown) {
  std::vector<std::string> notes;
  if (truncated) notes.emplace_back("cut");
  if (unknown > 0) notes.push_back(absl::StrCat(unknown, " unknown"));
  if (notes.empty()) return absl::StrCat(tokens);
  return absl::StrCat(tokens, " (", absl::StrJoin(notes, ", "), ")");
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double Exact(float value) { return std::strtod(absl::StrFormat("%.9g", value).c_str(), nullptr); }

Json MessageJson(const Message& message) {
  Json json = Json::object();
  const Reflection& values = *message.GetReflection();
  for (int f = 0; f < message.GetDescriptor()->field_count(); ++f) {
    const FieldDescriptor* const field = message.GetDescriptor()->field(f);
    if (field->type() == FieldDescriptor::TYPE_BYTES) continue;
    if (field->has_presence() && !values.HasField(message, field)) continue;
    Json& value = json[std::string(field->name())];
    if (!field->is_repeated()) {
      value = ValueJson(message, field, 0);
      continue;
    }
    value = Json::array();
    for (int i = 0; i < values.FieldSize(message, field); ++i) {
      value.push_back(ValueJson(message, field, i));
    }
  }
  return json;
}

void EraseEmpty(std::initializer_list<const char*> keys, Json* json) {
  for (const char* key : keys) {
    if (json->contains(key) && (*json)[key].empty()) json->erase(key);
  }
}

void PrintStatuses(const Command& command, bool json,
                   const google::protobuf::RepeatedPtrField<v1::ModelStatus>& statuses) {
  Printer printer(command, json, {{"NAME"}, {"VERSION", true}, {"STATE"}, {"MESSAGE"}});
  for (const v1::ModelStatus& status : statuses) {
    const std::string state = v1::ModelStatus::State_Name(status.state());
    if (json) {
      printer.Object({{"name", status.model()},
                      {"version", status.version()},
                      {"state", state},
                      {"message", status.message()}});
    } else {
      printer.Row({status.model(),
                   status.version() == 0 ? kNothing : absl::StrCat(status.version()), state,
                   status.message()});
    }
  }
  printer.Flush();
}

}  // namespace sru::client
