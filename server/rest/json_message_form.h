// What readers and writers of JSON (json_message.h) know of a type of message. Thread-safe.
#ifndef SRU_SERVER_REST_JSON_MESSAGE_FORM_H_
#define SRU_SERVER_REST_JSON_MESSAGE_FORM_H_

#include <cstddef>
#include <cstdint>
#include <optional>
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
  size_t index = 0;  // among the keys of the message
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

  // Whether a string is read as a list of it alone. A list of words takes none: nobody could tell
  // whether the string is to be split.
  bool takes_text = false;
};
struct MessageForm {
  const google::protobuf::Descriptor* type = nullptr;
  std::vector<FieldForm> fields;  // in the order of their declaration

  // What is read besides protobuf's form. All of it is derived from the descriptor.
  //
  // The only string of a message that is one of several things: that string alone stands for the
  // message, {"prompt": "..."} for {"prompt": {"text": "..."}}.
  const FieldForm* text = nullptr;
  // The only field of a message, if it is a list: that list alone stands for the message.
  const FieldForm* list = nullptr;
  // What a request is about: its only list of messages, or else its first message.
  const FieldForm* input = nullptr;
  // `input`, if the fields of one such message may stand in the request itself.
  const FieldForm* flat = nullptr;
  // A list of strings in place of `flat`, if these stand for the messages: "texts".
  std::optional<FieldForm> texts;

  const FieldForm* Find(absl::string_view name) const {
    for (const FieldForm& field : fields) {
      if (field.name == name) return &field;
    }
    for (const FieldForm& field : fields) {
      if (field.camel_name == name) return &field;
    }
    return texts.has_value() && texts->name == name ? &*texts : nullptr;
  }
};

const MessageForm& FormOf(const google::protobuf::Descriptor& type);

// Names of an enum as people write them: "low" for PRIORITY_LOW.
std::vector<std::string> ShortNames(const google::protobuf::EnumDescriptor& values);
// The value with this name or short name, in any case; null if there is none.
const google::protobuf::EnumValueDescriptor* FindValue(
    const google::protobuf::EnumDescriptor& values, absl::string_view name);

// The names that a message takes.
std::vector<absl::string_view> NamesOf(const MessageForm& message);
// JSON that shows the form of a message, or of a field's value: {"sequences": ["..."]}.
std::string ExampleOf(const MessageForm& message);
std::string ExampleOf(const FieldForm& field, bool is_element = false);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_JSON_MESSAGE_FORM_H_
