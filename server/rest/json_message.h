// Messages of protobuf as JSON, in protobuf's own form
// (https://protobuf.dev/programming-guides/json/): what is written here every JSON parser of
// protobuf reads, and the reverse. It goes from and to the bytes of messages, without protobuf's
// utility or reflection, because a refusal must name the place in the request, the memory must be
// bounded, and these take several times as long for a short request and its answer.
//
// Names of fields are written as the contract has them (snake_case); lowerCamelCase is read, too.
// 64-bit integers are written as strings, bytes as base64, enums by name. null is the same as a
// field that is left out.
//
// Shorter forms are read, too, and give the same message (json_message_form.h derives them from its
// descriptor): a string for a Sequence with only a text, and for a list of one text; a list for
// Tokens and TokenIds; names of enums in any case and without their prefix; and in place of a
// request's sequences or queries the fields of one of them, or "texts".
//
// Pure functions.
#ifndef SRU_SERVER_REST_JSON_MESSAGE_H_
#define SRU_SERVER_REST_JSON_MESSAGE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "server/calls/bounds/request_limits.h"
#include "server/rest/memory_hold.h"

namespace sru::server::rest {

// Appends the bytes of the message of this type that `json`, an object, describes. Reserves the
// memory that they and the message take. kInvalidArgument names the field or the line and what is
// wrong: text that is not JSON or not UTF-8, unknown fields, keys that come twice, two of a oneof
// or of the forms of the same thing, values of a wrong type or out of range, more than the
// message's own nesting; and more sequences, queries or words than the limits allow, unless they
// are null. kResourceExhausted: the memory is not to be had.
absl::Status ParseJsonMessage(const google::protobuf::Descriptor& type, absl::string_view json,
                              MemoryHold* memory, std::string* wire,
                              const calls::RequestLimits* limits = nullptr);
// Makes `*message` of it, which is empty before.
absl::Status ParseJsonMessage(absl::string_view json, MemoryHold* memory,
                              google::protobuf::Message* message,
                              const calls::RequestLimits* limits = nullptr);

enum class JsonFields {
  kAll,  // all but absent messages and members of a oneof, so that readers need no defaults
  kSet,  // what differs from its default
  // As kAll, with 64-bit integers as numbers, which is what clients of the Open Inference Protocol
  // read.
  kPlain,
};

// Appends the message of this type that has these bytes, as this process has serialized it.
// kResourceExhausted: the memory is not to be had; kInternal: the bytes are no message.
absl::Status WriteJsonMessage(const google::protobuf::Descriptor& type, const absl::Cord& bytes,
                              JsonFields fields, MemoryHold* memory, std::string* json);
absl::Status WriteJsonMessage(const google::protobuf::Message& message, JsonFields fields,
                              MemoryHold* memory, std::string* json);

// Appends a JSON string. Bytes that are not UTF-8 become U+FFFD.
void AppendJsonString(absl::string_view text, std::string* json);
// Likewise, behind a name and the rest of the JSON before it: `"name":`.
void AppendJsonText(absl::string_view before, absl::string_view text, std::string* json);

// Appends the shortest number that is read as this value; not finite: null.
void AppendJsonNumber(double value, std::string* json);
void AppendJsonNumber(float value, std::string* json);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_JSON_MESSAGE_H_
