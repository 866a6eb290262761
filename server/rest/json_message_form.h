// What readers and writers of JSON (json_message.h) know of a type of message. Thread-safe.
#ifndef SRU_SERVER_REST_JSON_MESSAGE_FORM_H_
#define SRU_SERVER_REST_JSON_MESSAGE_FORM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"

namespace sru::server::rest {

// Memory is reserved in steps of so many bytes.
inline constexpr int64_t kReserveStep = 16 << 10;

// A type of message, as its descriptor has it. It is made once for each type: to ask descriptors
// and reflection takes longer than to read and to write.
struct MessageForm;
struct FieldForm {
  int number = 0;
  absl::string_view name;
  absl::string_view camel_name;
  std::string key;  // the name as it is written, with a comma before it, its quotes and the colon
  google::protobuf::FieldDescriptor::Type type = google::protobuf::FieldDescriptor::TYPE_BOOL;
  bool is_list = false;  // or a map
  bool is_map = false;
  bool is_packed = false;
  // The fields of a message are in the order of their numbers. This one comes before the one that
  // was declared before it, or is the first.
  bool restarts = false;
  bool is_optional = false;
  const google::protobuf::OneofDescriptor* oneof = nullptr;
  const google::protobuf::EnumDescriptor* values = nullptr;
  const MessageForm* message = nullptr;
};
struct MessageForm {
  const google::protobuf::Descriptor* type = nullptr;
  std::vector<FieldForm> fields;  // in the order of their declaration

  const FieldForm* Find(absl::string_view name) const {
    for (const FieldForm& field : fields) {
      if (field.name == name) return &field;
    }
    for (const FieldForm& field : fields) {
      if (field.camel_name == name) return &field;
    }
    return nullptr;
  }
};

const MessageForm& FormOf(const google::protobuf::Descriptor& type);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_JSON_MESSAGE_FORM_H_
