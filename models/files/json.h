// JSON as the readers of this folder need it: strict, bounded, without exceptions.
#ifndef SRU_MODELS_FILES_JSON_H_
#define SRU_MODELS_FILES_JSON_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json_fwd.hpp"

namespace sru::models {

// What a text may ask for. Parsed, a value takes up to a hundred times its bytes.
struct JsonLimits {
  int max_depth = 0;                      // of arrays and objects
  int64_t max_values = int64_t{1} << 18;  // of every kind, keys not counted
  int64_t max_elements = max_values;      // of one array
};

// Parses one JSON value that must be an object. kInvalidArgument ("<source>: ...") when `text` is
// not JSON in UTF-8, is not an object, repeats a key within an object, or exceeds `limits`, which
// is found out before any value is built.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, const JsonLimits& limits,
                                               const std::string& source);

// A string from a file for an error message, in single quotes: cut to a readable length, with
// everything but printable ASCII escaped.
std::string Quoted(std::string_view text);

// A value for an error message: its JSON text, cut and escaped in the same way.
std::string JsonExcerpt(const nlohmann::json& value);

}  // namespace sru::models

#endif  // SRU_MODELS_FILES_JSON_H_
