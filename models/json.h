// JSON as the readers of this folder need it: strict, bounded, without exceptions.
#ifndef SRU_MODELS_JSON_H_
#define SRU_MODELS_JSON_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace sru::models {

// Parses one JSON value that must be an object. InvalidArgument ("<source>: ...") when `text` is
// not JSON in UTF-8, is not an object, repeats a key within an object, or nests arrays and objects
// deeper than `max_depth`.
absl::StatusOr<nlohmann::json> ParseJsonObject(std::string_view text, int max_depth,
                                               const std::string& source);

// A string from a file for an error message, in single quotes: cut to a readable length, with
// everything but printable ASCII escaped.
std::string Quoted(std::string_view text);

// A value for an error message: its JSON text, cut and escaped in the same way.
std::string JsonExcerpt(const nlohmann::json& value);

}  // namespace sru::models

#endif  // SRU_MODELS_JSON_H_
