#include "server/rest/json_body.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"

namespace sru::server::rest {
namespace {

constexpr size_t kLongestExcerpt = 200;

// Why `body` is not JSON, with line and column; `otherwise` if it is.
absl::Status JsonSyntaxError(absl::string_view body, const absl::Status& otherwise) {
  if (absl::IsCancelled(otherwise)) return otherwise;
  JsonReader reader(body);
  if (reader.Skip()) reader.ExpectEnd();
  if (absl::IsCancelled(reader.status())) return reader.status();
  const size_t valid = FindInvalidUtf8({body.data(), body.size()});
  if (reader.error_at() > valid && valid == body.size()) return otherwise;
  const absl::string_view before = body.substr(0, std::min(reader.error_at(), valid));
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  absl::string_view what = "expected UTF-8, found other bytes";
  if (reader.error_at() <= valid) {
    what = reader.status().message();
    what.remove_prefix(what.find(": ") + 2);  // "JSON, byte 5: "
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the body is not JSON: line ", 1 + std::count(before.begin(), before.end(), '\n'),
      ", column ", 1 + before.size() - line_begin, ": ", what));
}

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

absl::Status ReadJsonBody(absl::string_view body, JsonErrors errors,
                          const std::function<absl::Status(JsonReader* reader)>& read) {
  absl::string_view text = body;
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");
  JsonReader reader(text);
  absl::Status status = read(&reader);
  if (status.ok()) reader.ExpectEnd();
  if (!reader.ok()) return JsonSyntaxError(text, reader.status());
  const absl::string_view seen = text.substr(0, reader.offset());
  if (FindInvalidUtf8({seen.data(), seen.size()}) < seen.size()) {
    return JsonSyntaxError(text, absl::OkStatus());
  }
  if (status.ok() || errors == JsonErrors::kInOrder) return status;
  return JsonSyntaxError(text, status);
}

}  // namespace sru::server::rest
