#include "server/rest/json_body.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"
#include "nlohmann/json.hpp"
#include "server/base/interruption.h"

namespace sru::server::rest {
namespace {

using nlohmann::json;

constexpr size_t kLongestExcerpt = 200;

constexpr int kEventsUntilAsked = 4096;
// nlohmann's parser stops at a number that no double holds. That number is JSON.
constexpr int kNumberOverflow = 406;

// Keeps nothing but the first error, which this parser tells by line and column. Ends early when it
// is interrupted.
struct SyntaxCheck {
  bool null() { return GoesOn(); }
  bool boolean(bool /*value*/) { return GoesOn(); }
  bool number_integer(json::number_integer_t /*value*/) { return GoesOn(); }
  bool number_unsigned(json::number_unsigned_t /*value*/) { return GoesOn(); }
  bool number_float(json::number_float_t /*value*/, const json::string_t& /*text*/) {
    return GoesOn();
  }
  bool string(json::string_t& /*text*/) { return GoesOn(); }
  static bool binary(json::binary_t& /*value*/) { return true; }
  bool start_object(size_t /*elements*/) { return GoesOn(); }
  bool key(json::string_t& /*name*/) { return GoesOn(); }
  static bool end_object() { return true; }
  bool start_array(size_t /*elements*/) { return GoesOn(); }
  static bool end_array() { return true; }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const json::exception& found) {
    if (found.id != kNumberOverflow) error = found.what();
    return false;
  }

  bool GoesOn() {
    interrupted = ++events % kEventsUntilAsked == 0 && Interruption::Asked();
    return !interrupted;
  }

  std::string error;
  int64_t events = 0;
  bool interrupted = false;
};

}  // namespace

JsonNumber JsonNumberOf(double real) {
  constexpr double kExact = 9007199254740992.0;
  JsonNumber number;
  number.real = real;  // -0.0 keeps its sign
  if (std::abs(real) < kExact && real == std::floor(real)) {
    number.as_signed = static_cast<int64_t>(real);
    if (real >= 0) number.as_unsigned = static_cast<uint64_t>(real);
  }
  return number;
}

JsonNumber ParseJsonNumber(absl::string_view text) {
  JsonNumber number;
  number.text = text == "-0" ? "0" : text;
  int64_t as_signed = 0;
  uint64_t as_unsigned = 0;
  if (text.find_first_of(".eE") == absl::string_view::npos) {
    if (absl::SimpleAtoi(text, &as_signed)) number.as_signed = as_signed;
    if (absl::SimpleAtoi(number.text, &as_unsigned)) number.as_unsigned = as_unsigned;
  }
  if (number.as_signed.has_value()) {
    number.real = static_cast<double>(as_signed);
  } else if (number.as_unsigned.has_value()) {
    number.real = static_cast<double>(as_unsigned);
  } else {
    static_cast<void>(absl::SimpleAtod(text, &number.real));  // JsonReader has checked its form
    number = JsonNumberOf(number.real);
    number.text = text;
  }
  return number;
}

std::string Excerpt(absl::string_view text) {
  const absl::string_view start = text.substr(0, kLongestExcerpt);
  return std::string(start.substr(0, FindInvalidUtf8({start.data(), start.size()})));
}

absl::Status JsonSyntaxError(absl::string_view body, const absl::Status& otherwise) {
  SyntaxCheck check;
  if (absl::IsCancelled(otherwise)) return otherwise;
  json::sax_parse(body.begin(), body.end(), &check);
  if (check.interrupted) return absl::CancelledError("the caller has left");
  if (check.error.empty()) return otherwise;
  absl::string_view what = check.error;
  // "[json.exception.parse_error.101] parse error at line 1, column 2: ...": without the class.
  const size_t end = what.find("] ");
  if (end != absl::string_view::npos) what.remove_prefix(end + 2);
  return absl::InvalidArgumentError(absl::StrCat("the body is not JSON: ", Excerpt(what)));
}

absl::Status ReadJsonBody(absl::string_view body, JsonErrors errors,
                          const std::function<absl::Status(JsonReader* reader)>& read) {
  absl::string_view text = body;
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  JsonReader reader(text);
  absl::Status status = read(&reader);
  if (status.ok()) reader.ExpectEnd();
  if (!reader.ok()) return JsonSyntaxError(body, reader.status());
  const absl::string_view seen = text.substr(0, reader.offset());
  if (FindInvalidUtf8({seen.data(), seen.size()}) < seen.size()) {
    return JsonSyntaxError(body, absl::InvalidArgumentError("the body is not JSON"));
  }
  if (status.ok() || errors == JsonErrors::kInOrder) return status;
  return JsonSyntaxError(body, status);
}

}  // namespace sru::server::rest
