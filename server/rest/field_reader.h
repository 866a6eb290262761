// FieldReader: the fields of a JSON object that a request of another API has, read strictly: a
// field that nobody has taken is refused by name, since what an option was meant to change should
// not silently stay as it is. null is the same as a field that is left out.
//
//   json tree;
//   if (absl::Status status = ParseTree(call->body(), &call->memory(), &tree); !status.ok()) ...
//   FieldReader fields(tree);
//   request.set_model(fields.String("model"));
//   request.truncate = fields.Boolean("truncate");
//   if (RestError error = fields.End(); !error.status.ok()) return error;
//
// The first problem counts; a field with a problem reads as if it were left out. Not thread-safe.
#ifndef SRU_SERVER_REST_FIELD_READER_H_
#define SRU_SERVER_REST_FIELD_READER_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "server/rest/error_response.h"
#include "server/rest/memory_hold.h"

namespace sru::server::rest {

// Reads a body that is a JSON object, and reserves the memory that the tree takes. A key that comes
// twice and deep nesting are errors. The time is linear in the bytes, whatever they are.
absl::Status ParseTree(absl::string_view body, MemoryHold* memory, nlohmann::json* tree);

// A value as an error shows it: short, and valid UTF-8.
std::string Shown(const nlohmann::json& value);

bool IsTokenId(const nlohmann::json& value);

class FieldReader {
 public:
  static constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

  // The object must outlive it. `prefix` stands before the names in messages, such as
  // "parameters.".
  explicit FieldReader(const nlohmann::json& object, std::string prefix = "")
      : object_(object), prefix_(std::move(prefix)) {}

  void Fail(const std::string& name, const std::string& message);
  void Wrong(const std::string& name, absl::string_view expected, const nlohmann::json& found);

  // Null if the field is left out.
  const nlohmann::json* Take(const std::string& name);
  int32_t Integer(const std::string& name, int32_t fallback, int32_t least, int32_t most = kMost);
  float Number(const std::string& name, double fallback, double least, double most);
  bool Boolean(const std::string& name, bool fallback = false);
  std::string String(const std::string& name);
  std::string Needed(const std::string& name);  // a string that must not be left out
  // One of these strings, the first of them if it is left out.
  std::string OneOf(const std::string& name, std::initializer_list<const char*> strings);
  // A string, or a list of at most `most` strings, at least one; `*is_list` says which. Ids instead
  // of strings are refused with `advice`.
  std::vector<std::string> Texts(const std::string& name, size_t most, absl::string_view advice,
                                 bool* is_list);

  // The fields of an object inside this one; none if it is left out. To be given to Adopt() when
  // they have been taken.
  FieldReader Object(const std::string& name);
  void Adopt(FieldReader* inner);

  // Refuses an option that is not supported, unless its value asks for nothing.
  void RefuseUnless(const std::string& name, std::initializer_list<nlohmann::json> nothing);
  // After all fields have been taken: the problem, which may be one that nobody has taken; OK if
  // there is none.
  RestError End();

 private:
  const nlohmann::json& object_;
  const std::string prefix_;
  std::set<std::string> known_;
  RestError error_;
};

// The error of a method of sru.v1 in the words of another API. `names` are pairs of a path there,
// such as "sequences", and the name here; the path at the beginning of the message and `param`
// become those here. "sequences[2].text" is "input[2]", or "input" unless `is_list`. `advice` comes
// in place of what sru.v1 advises (server/base/advice.h), whose fields this API may not have.
using FieldNames = std::vector<std::pair<absl::string_view, absl::string_view>>;
RestError InFieldsOf(const FieldNames& names, bool is_list, absl::string_view advice,
                     RestError error);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_FIELD_READER_H_
