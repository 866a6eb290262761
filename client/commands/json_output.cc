#include "client/commands/json_output.h"

#include <cstdlib>

#include "absl/strings/str_format.h"
#include "client/names.h"
#include "google/protobuf/descriptor.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

double Exact(float value) { return std::strtod(absl::StrFormat("%.9g", value).c_str(), nullptr); }

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// The value of a field; of one that is repeated, that at `i`.
Json ValueJson(const Message& message, const FieldDescriptor* field, int i) {
  const google::protobuf::Reflection& values = *message.GetReflection();
  const bool repeated = field->is_repeated();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? values.GetRepeatedInt32(message, field, i)
                      : values.GetInt32(message, field);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? values.GetRepeatedInt64(message, field, i)
                      : values.GetInt64(message, field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Exact(repeated ? values.GetRepeatedFloat(message, field, i)
                            : values.GetFloat(message, field));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return repeated ? values.GetRepeatedDouble(message, field, i)
                      : values.GetDouble(message, field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? values.GetRepeatedBool(message, field, i) : values.GetBool(message, field);
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? values.GetRepeatedString(message, field, i)
                      : values.GetString(message, field);
    case FieldDescriptor::CPPTYPE_ENUM:
      return NameOf(repeated ? *values.GetRepeatedEnum(message, field, i)
                             : *values.GetEnum(message, field));
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

Json MessageJson(const Message& message) {
  Json json = Json::object();
  const google::protobuf::Reflection& values = *message.GetReflection();
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

}  // namespace sru::client
