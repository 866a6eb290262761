#include "server/rest/json_message_form.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/mutex.h"

namespace sru::server::rest {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;

// "OutputFormat": "OUTPUT_FORMAT_", with which protobuf's style has the names of its values begin.
std::string PrefixOf(const EnumDescriptor& values) {
  std::string prefix;
  for (const char c : values.name()) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !prefix.empty()) prefix += '_';
    prefix += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return prefix + '_';
}

using MessageForms = std::unordered_map<const Descriptor*, MessageForm>;

void AddInput(MessageForm* form) {
  const FieldForm* list = nullptr;
  int num_lists = 0;
  for (const FieldForm& field : form->fields) {
    if (field.message == nullptr || field.is_map) continue;
    if (form->input == nullptr) form->input = &field;
    if (!field.is_list) continue;
    list = &field;
    ++num_lists;
  }
  if (num_lists != 1) return;
  form->input = list;
  if (list->message->list != nullptr) return;
  form->flat = list;
  if (list->message->text == nullptr) return;
  FieldForm& texts = form->texts.emplace(*list);
  texts.index = form->fields.size();
  texts.type = FieldDescriptor::TYPE_STRING;
  texts.key = absl::StrCat(list->message->text->name, "s");
  texts.name = texts.camel_name = texts.key;
}

void AddShortForms(MessageForm* form) {
  const std::vector<FieldForm>& fields = form->fields;
  const bool is_choice = form->type->real_oneof_decl_count() == 1 &&
                         form->type->oneof_decl(0)->field_count() == form->type->field_count();
  const auto is_text = [](const FieldForm& field) {
    return field.type == FieldDescriptor::TYPE_STRING;
  };
  if (is_choice && std::count_if(fields.begin(), fields.end(), is_text) == 1) {
    form->text = &*std::find_if(fields.begin(), fields.end(), is_text);
  }
  if (fields.size() == 1 && fields[0].is_list && !fields[0].is_map) form->list = &fields[0];
  for (FieldForm& field : form->fields) {
    field.takes_text = field.is_list && form->list == nullptr &&
                       (is_text(field) || field.type == FieldDescriptor::TYPE_BYTES ||
                        (field.message != nullptr && field.message->text != nullptr));
  }
  if (absl::EndsWith(form->type->name(), "Request")) AddInput(form);
}

const MessageForm& MakeForm(const Descriptor& type, MessageForms* forms) {
  const auto [place, is_new] = forms->try_emplace(&type);
  MessageForm& form = place->second;
  if (!is_new) return form;
  form.type = &type;
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    FieldForm& made = form.fields.emplace_back();
    made.index = static_cast<size_t>(i);
    made.number = field.number();
    made.name = field.name();
    made.camel_name = field.json_name();
    made.key = absl::StrCat(",\"", made.name, "\":");
    made.type = field.type();
    made.is_list = field.is_repeated();
    made.is_map = field.is_map();
    made.is_packed = field.is_packed();
    made.restarts = i == 0 || field.number() < type.field(i - 1)->number();
    made.is_optional = !field.is_repeated() && field.has_presence();
    made.oneof = field.containing_oneof();
    made.values = field.enum_type();
    if (field.message_type() != nullptr) made.message = &MakeForm(*field.message_type(), forms);
  }
  AddShortForms(&form);
  return form;
}

}  // namespace

const MessageForm& FormOf(const Descriptor& type) {
  static auto* const mutex = new Mutex();
  static auto* const forms = new MessageForms();
  MutexLock lock(mutex);
  return MakeForm(type, forms);
}

std::vector<std::string> ShortNames(const EnumDescriptor& values) {
  const std::string prefix = PrefixOf(values);
  std::vector<std::string> names;
  for (int i = 0; i < values.value_count(); ++i) {
    names.push_back(absl::AsciiStrToLower(absl::StripPrefix(values.value(i)->name(), prefix)));
  }
  return names;
}

const EnumValueDescriptor* FindValue(const EnumDescriptor& values, absl::string_view name) {
  std::string full(name);
  if (const auto* const value = values.FindValueByName(full)) return value;
  absl::AsciiStrToUpper(&full);
  if (const auto* const value = values.FindValueByName(full)) return value;
  return values.FindValueByName(PrefixOf(values) + full);
}

std::vector<absl::string_view> NamesOf(const MessageForm& message) {
  std::vector<absl::string_view> names;
  for (const FieldForm& field : message.fields) names.push_back(field.name);
  if (message.texts.has_value()) names.push_back(message.texts->name);
  if (message.flat == nullptr) return names;
  for (const FieldForm& field : message.flat->message->fields) names.push_back(field.name);
  return names;
}

std::string ExampleOf(const MessageForm& message) {
  if (message.input != nullptr)
    return absl::StrCat("{\"", message.input->name, "\": ", ExampleOf(*message.input), "}");
  std::string example;
  for (const FieldForm& field : message.fields) {
    absl::StrAppend(&example, example.empty() ? "" : ", ", "\"", field.name,
                    "\": ", ExampleOf(field));
    if (message.text != nullptr || field.index == 1) break;
  }
  return absl::StrCat("{", example, "}");
}

std::string ExampleOf(const FieldForm& field, bool is_element) {
  if (field.is_map) return R"({"1": 0.5})";
  if (field.is_list && !is_element) {
    return absl::StrCat("[", ExampleOf(field, /*is_element=*/true), "]");
  }
  switch (field.type) {
    case FieldDescriptor::TYPE_STRING:
    case FieldDescriptor::TYPE_BYTES:
      return "\"...\"";
    case FieldDescriptor::TYPE_BOOL:
      return "true";
    case FieldDescriptor::TYPE_ENUM:
      return absl::StrCat("\"", ShortNames(*field.values).back(), "\"");
    case FieldDescriptor::TYPE_MESSAGE:
      break;
    default:
      return "1";
  }
  if (field.message->text != nullptr) return "\"...\"";
  return field.message->list != nullptr ? ExampleOf(*field.message->list)
                                        : ExampleOf(*field.message);
}

}  // namespace sru::server::rest
