// ReadJsonBody: the JSON of a request's body, for whoever builds something of it.
#ifndef SRU_SERVER_REST_JSON_BODY_H_
#define SRU_SERVER_REST_JSON_BODY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/rest/json_reader.h"

namespace sru::server::rest {

struct JsonNumber {
  absl::string_view text;
  double real = 0;  // infinite if no double holds the number
  // If it is a whole number that fits. 16.0 and 1e3 are, below 2^53, as languages without integers
  // write them.
  std::optional<int64_t> as_signed;
  std::optional<uint64_t> as_unsigned;
};
// Without a text.
JsonNumber JsonNumberOf(double real);
JsonNumber ParseJsonNumber(absl::string_view text);

// The beginning of a text that a request has, for a message: short and valid UTF-8.
std::string Excerpt(absl::string_view text);

// What counts if the text behind a refusal is not JSON.
enum class JsonErrors { kInOrder, kSyntaxFirst };

// Calls `read` with the text of the body, behind a byte order mark. Returns its refusal;
// kInvalidArgument if the text, as far as it was read, is not JSON, and if something follows.
absl::Status ReadJsonBody(absl::string_view body, JsonErrors errors,
                          const std::function<absl::Status(JsonReader* reader)>& read);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_JSON_BODY_H_
