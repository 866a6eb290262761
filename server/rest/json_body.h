// ReadJsonBody: the JSON of a request below /v1 as events, for whoever builds something of it.
#ifndef SRU_SERVER_REST_JSON_BODY_H_
#define SRU_SERVER_REST_JSON_BODY_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/utf8.h"
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

// Why `body` is not JSON, with line and column; `otherwise` if nothing else is wrong with it, or if that is kCancelled because reading was interrupted.
absl::Status JsonSyntaxError(absl::string_view body, const absl::Status& otherwise);

// The events of JsonReader::Walk(), with strings checked and numbers read. `events` refuses a number that is out of range,
// since it knows the field.
template <typename Events>
class BodyEvents {
 public:
  explicit BodyEvents(Events* events) : events_(*events) {}

  bool Null() { return events_.Null(); }
  bool Bool(bool value) { return events_.Bool(value); }
  bool Number(absl::string_view text) { return events_.Number(ParseJsonNumber(text)); }
  bool String(absl::string_view text, size_t /*size*/) {
    return IsUtf8(text) && events_.String(text);
  }
  bool StartObject() { return events_.StartObject(); }
  bool Key(absl::string_view name) { return IsUtf8(name) && events_.Key(name); }
  void EndObject() { events_.EndObject(); }
  bool StartArray() { return events_.StartArray(); }
  void EndArray() { events_.EndArray(); }

  // Whether what JsonReader does not check was JSON so far.
  bool good() const { return good_; }

 private:
  bool IsUtf8(absl::string_view text) {
    good_ = FindInvalidUtf8({text.data(), text.size()}) == text.size();
    return good_;
  }

  Events& events_;
  bool good_ = true;
};

// Calls the functions of `*events`, named as in BodyEvents, in the order of the text until one returns false.
// kInvalidArgument if the text up to there is not JSON. A byte order mark is passed over.
template <typename Events>
absl::Status ReadJsonBody(absl::string_view body, Events* events) {
  constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";
  const bool marked = body.substr(0, kByteOrderMark.size()) == kByteOrderMark;
  const absl::string_view text = body.substr(marked ? kByteOrderMark.size() : 0);
  JsonReader reader(text);
  BodyEvents<Events> checked(events);
  if (reader.Walk(&checked)) {
    reader.Next();
    if (reader.offset() == text.size()) return absl::OkStatus();
    reader.ExpectEnd();
  }
  if (reader.ok() && checked.good()) return absl::OkStatus();
  return JsonSyntaxError(
      body, reader.ok() ? absl::InvalidArgumentError("the body is not JSON") : reader.status());
}

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_JSON_BODY_H_
