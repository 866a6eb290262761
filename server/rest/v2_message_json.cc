#include "server/rest/v2_message_json.h"

#include <string>

#include "google/protobuf/descriptor.h"
#include "nlohmann/json.hpp"

namespace sru::server::rest {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using nlohmann::ordered_json;

// The value of a field, or of element `index` of a repeated one.
ordered_json ValueToJson(const Message& message, const FieldDescriptor& field,
                         int index) {  // NOLINT(misc-no-recursion)
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field.is_repeated();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return repeated ? reflection.GetRepeatedInt32(message, &field, index)
                      : reflection.GetInt32(message, &field);
    case FieldDescriptor::CPPTYPE_INT64:
      return repeated ? reflection.GetRepeatedInt64(message, &field, index)
                      : reflection.GetInt64(message, &field);
    case FieldDescriptor::CPPTYPE_UINT32:
      return repeated ? reflection.GetRepeatedUInt32(message, &field, index)
                      : reflection.GetUInt32(message, &field);
    case FieldDescriptor::CPPTYPE_UINT64:
      return repeated ? reflection.GetRepeatedUInt64(message, &field, index)
                      : reflection.GetUInt64(message, &field);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return repeated ? reflection.GetRepeatedDouble(message, &field, index)
                      : reflection.GetDouble(message, &field);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return repeated ? reflection.GetRepeatedFloat(message, &field, index)
                      : reflection.GetFloat(message, &field);
    case FieldDescriptor::CPPTYPE_BOOL:
      return repeated ? reflection.GetRepeatedBool(message, &field, index)
                      : reflection.GetBool(message, &field);
    case FieldDescriptor::CPPTYPE_ENUM: {
      const int number = repeated ? reflection.GetRepeatedEnumValue(message, &field, index)
                                  : reflection.GetEnumValue(message, &field);
      const auto* const value = field.enum_type()->FindValueByNumber(number);
      if (value == nullptr) return number;
      return std::string(value->name());
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return repeated ? reflection.GetRepeatedString(message, &field, index)
                      : reflection.GetString(message, &field);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return MessageToJson(repeated ? reflection.GetRepeatedMessage(message, &field, index)
                                    : reflection.GetMessage(message, &field));
  }
  return nullptr;
}

// Keys of maps are strings in JSON.
std::string KeyToJson(const Message& entry, const FieldDescriptor& field) {
  const ordered_json key = ValueToJson(entry, field, -1);
  return key.is_string() ? key.get<std::string>() : key.dump();
}

}  // namespace

ordered_json MessageToJson(const Message& message) {  // NOLINT(misc-no-recursion)
  const auto& descriptor = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  ordered_json json = ordered_json::object();
  for (int i = 0; i < descriptor.field_count(); ++i) {
    const FieldDescriptor& field = *descriptor.field(i);
    const std::string name(field.name());
    if (field.is_map()) {
      ordered_json entries = ordered_json::object();
      const auto& entry_fields = *field.message_type();
      for (int entry = 0; entry < reflection.FieldSize(message, &field); ++entry) {
        const Message& pair = reflection.GetRepeatedMessage(message, &field, entry);
        entries[KeyToJson(pair, *entry_fields.map_key())] =
            ValueToJson(pair, *entry_fields.map_value(), -1);
      }
      json[name] = std::move(entries);
    } else if (field.is_repeated()) {
      ordered_json values = ordered_json::array();
      for (int value = 0; value < reflection.FieldSize(message, &field); ++value) {
        values.push_back(ValueToJson(message, field, value));
      }
      json[name] = std::move(values);
    } else if (!field.has_presence() || reflection.HasField(message, &field)) {
      json[name] = ValueToJson(message, field, -1);
    }
  }
  return json;
}

}  // namespace sru::server::rest
