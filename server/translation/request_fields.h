// RequestFields: the fields of a request whose body is a form (application/x-www-form-urlencoded)
// or a JSON object of strings, numbers, truth values and lists of them: both say the same. Fields
// that nobody asks for are ignored, whatever they have, as the APIs do that take such requests.
//
// Not thread-safe.
#ifndef SRU_SERVER_TRANSLATION_REQUEST_FIELDS_H_
#define SRU_SERVER_TRANSLATION_REQUEST_FIELDS_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/rest/json_reader.h"
#include "server/rest/memory_hold.h"

namespace sru::server::translation {

class RequestFields {
 public:
  // Adds the fields of a form, such as a query. Reserves the memory that they take.
  // kInvalidArgument names the field: percent signs without digits, bytes that are not UTF-8.
  // kCancelled: the thread's work is to end (server/base/interruption.h).
  absl::Status AddForm(absl::string_view form, rest::MemoryHold* memory);
  // Adds the fields of a JSON object; null is the same as a field that is left out. An object, or
  // what cannot stand in a list, is passed over: it is a problem of who asks for the field.
  absl::Status AddJson(absl::string_view json, rest::MemoryHold* memory);
  // The body by its content type.
  absl::Status AddBody(absl::string_view body, absl::string_view content_type,
                       rest::MemoryHold* memory);

  bool has(const std::string& name) const { return fields_.count(name) > 0; }
  // True if it came as a list.
  bool is_list(const std::string& name) const;

  // All values in their order.
  std::vector<std::string> All(const std::string& name);
  // The last value; "" if there is none.
  std::string Last(const std::string& name);
  // "1" and "true", "0" and "false".
  bool Flag(const std::string& name, bool otherwise);
  // The first problem of a field that was asked for by these three: kInvalidArgument with its name.
  const absl::Status& status() const { return status_; }

 private:
  struct Values {
    std::vector<std::string> values;
    bool is_list = false;
    const char* wrong = nullptr;  // the first that was passed over, such as "an object"
    size_t wrong_at = 0;          // the values before it
  };
  absl::Status ReadObject(rest::JsonReader* reader);
  static void ReadValue(rest::JsonReader* reader, Values* field);
  // The values of a field; null if there is none. Notes its problem.
  const Values* Find(const std::string& name);

  std::map<std::string, Values> fields_;
  absl::Status status_;
};

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_REQUEST_FIELDS_H_
