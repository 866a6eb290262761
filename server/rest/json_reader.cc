#include "server/rest/json_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/utf8.h"
#include "base/valid_utf8.h"
#include "server/base/interruption.h"

namespace sru::server::rest {
namespace {

constexpr size_t kFoundCharacters = 40;
// They take some microseconds.
constexpr size_t kItemsUntilAsked = 256;

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// Four hexadecimal digits; -1 if they are not.
int32_t ReadHex4(absl::string_view text) {
  uint16_t value = 0;
  const char* const end = text.data() + 4;
  if (text.size() < 4 || std::from_chars(text.data(), end, value, 16).ptr != end) return -1;
  return value;
}

void AppendUtf8(uint32_t code_point, std::string* text) {
  const int more = code_point < 0x80 ? 0 : code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  constexpr uint32_t kFirst[] = {0, 0xC0, 0xE0, 0xF0};  // of characters with so many more bytes
  text->push_back(static_cast<char>(kFirst[more] | code_point >> (6 * more)));
  for (int i = more - 1; i >= 0; --i) {
    text->push_back(static_cast<char>(0x80 | (code_point >> (6 * i) & 0x3F)));
  }
}

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

void JsonReader::SkipSpace() {
  while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
}

bool JsonReader::Fail(absl::string_view expected) {
  if (!status_.ok()) return false;
  const size_t at = error_at_ = at_;  // Found() moves it
  status_ = absl::InvalidArgumentError(
      absl::StrCat("JSON, byte ", at, ": expected ", expected, ", found ", Found()));
  return false;
}

std::string JsonReader::Found() {
  switch (Next()) {
    case Kind::kObject:
      return "an object";
    case Kind::kArray:
      return "an array";
    default:
      break;
  }
  if (AtEnd()) return "the end";
  // A string whole, anything else up to what may follow a value.
  size_t end = at_ + 1;
  if (text_[at_] == '"') {
    while (end < text_.size() && text_[end] != '"') end += text_[end] == '\\' ? 2 : 1;
    end = std::min(end + 1, text_.size());
  } else {
    while (end < text_.size() && !IsSpace(text_[end]) && text_[end] != ',' && text_[end] != ']' &&
           text_[end] != '}') {
      ++end;
    }
  }
  const bool cut = end - at_ > kFoundCharacters;
  if (cut) end = at_ + kFoundCharacters;
  while (end < text_.size() && ContinuesUtf8(text_[end])) ++end;
  std::string found(text_.substr(at_, end - at_));
  std::replace_if(
      found.begin(), found.end(),
      [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }, '?');
  const size_t valid = FindInvalidUtf8({found.data(), found.size()});
  return absl::StrCat(found.substr(0, valid), cut || valid < found.size() ? "..." : "");
}

JsonReader::Kind JsonReader::Next() {
  SkipSpace();
  if (AtEnd()) return Kind::kOther;
  switch (text_[at_]) {
    case '{':
      return Kind::kObject;
    case '[':
      return Kind::kArray;
    case '"':
      return Kind::kString;
    case 't':
    case 'f':
      return Kind::kBool;
    case 'n':
      return Kind::kNull;
    default:
      return text_[at_] == '-' || absl::ascii_isdigit(text_[at_]) ? Kind::kNumber : Kind::kOther;
  }
}

bool JsonReader::Enter(char bracket, absl::string_view what) {
  if (!ok()) return false;
  SkipSpace();
  if (AtEnd() || text_[at_] != bracket) return Fail(what);
  if (depth_ == kMaxDepth) {
    Fail(absl::StrCat("at most ", kMaxDepth, " levels of nesting"));
    error_at_ = absl::string_view::npos;
    return false;
  }
  ++at_;
  ++depth_;
  has_items_[depth_] = false;
  is_object_[depth_] = bracket == '{';
  return true;
}

bool JsonReader::NextItem(char closing, absl::string_view expected) {
  if (!ok()) return false;
  SkipSpace();
  if (!AtEnd() && text_[at_] == closing) {
    ++at_;
    --depth_;
    return false;
  }
  if (has_items_[depth_] && !Take(',', expected)) return false;
  has_items_[depth_] = true;
  if (++items_ % kItemsUntilAsked == 0 && Interruption::Asked()) {
    status_ = absl::CancelledError("the caller has left");
    return false;
  }
  return true;
}

bool JsonReader::Take(char character, absl::string_view what) {
  if (!ok()) return false;
  SkipSpace();
  if (AtEnd() || text_[at_] != character) return Fail(what);
  ++at_;
  return true;
}

bool JsonReader::SkipString(absl::string_view* inside, bool* escapes) {
  if (!Take('"', "a string")) return false;
  const size_t begin = at_;
  *escapes = false;
  for (size_t i = begin; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '"') {
      *inside = text_.substr(begin, i - begin);
      at_ = i + 1;
      return true;
    }
    if (static_cast<unsigned char>(c) < 0x20) {
      error_at_ = i;
      status_ = absl::InvalidArgumentError(absl::StrCat(
          "JSON, byte ", i, ": expected control characters of a string as escapes, found 0x",
          absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2)));
      return false;
    }
    if (c == '\\') {
      *escapes = true;
      ++i;
    }
  }
  at_ = text_.size();
  return Fail("the string's closing quote");
}

bool JsonReader::Unescape(absl::string_view inside, std::string* value) {
  value->clear();
  value->reserve(inside.size());
  const size_t begin = static_cast<size_t>(inside.data() - text_.data());
  for (size_t i = 0; i < inside.size(); ++i) {
    const char c = inside[i];
    if (c != '\\') {
      value->push_back(c);
      continue;
    }
    at_ = begin + i;  // of an error
    // A backslash is never the last character: SkipString() takes the one after it with it.
    const char escaped = inside[++i];
    const size_t simple = absl::string_view("\"\\/bfnrt").find(escaped);
    if (simple != absl::string_view::npos) {
      value->push_back("\"\\/\b\f\n\r\t"[simple]);
      continue;
    }
    const int32_t unit = escaped == 'u' ? ReadHex4(inside.substr(i + 1)) : -1;
    if (unit < 0) return Fail("one of the escapes \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    i += 4;
    uint32_t code_point = static_cast<uint32_t>(unit);
    if (unit >= 0xD800 && unit < 0xE000) {
      const absl::string_view rest = inside.substr(i + 1);
      const int32_t low =
          rest.size() >= 6 && rest[0] == '\\' && rest[1] == 'u' ? ReadHex4(rest.substr(2)) : -1;
      if (unit >= 0xDC00 || low < 0xDC00 || low >= 0xE000) {
        return Fail("a surrogate as the first half of a pair");
      }
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (static_cast<uint32_t>(low) - 0xDC00);
      i += 6;
    }
    AppendUtf8(code_point, value);
  }
  at_ = begin + inside.size() + 1;
  return true;
}

bool JsonReader::ReadString(std::string* scratch, absl::string_view* value) {
  absl::string_view inside;
  bool escapes = false;
  if (!SkipString(&inside, &escapes)) return false;
  if (escapes) {
    if (!Unescape(inside, scratch)) return false;
    inside = *scratch;
  }
  *value = inside;
  return true;
}

bool JsonReader::ReadNumber(absl::string_view* digits) {
  if (!ok()) return false;
  SkipSpace();
  const size_t begin = at_;
  size_t i = begin;
  const auto skip_digits = [&] {
    const size_t first = i;
    while (i < text_.size() && absl::ascii_isdigit(text_[i])) ++i;
    return i > first;
  };
  if (i < text_.size() && text_[i] == '-') ++i;
  const bool zero = i < text_.size() && text_[i] == '0';
  // No digit follows a zero at the beginning: "00" and "01" are no numbers.
  bool good = skip_digits() && !(zero && i - begin > (text_[begin] == '-' ? 2U : 1U));
  if (good && i < text_.size() && text_[i] == '.') {
    ++i;
    good = skip_digits();
  }
  if (good && i < text_.size() && (text_[i] == 'e' || text_[i] == 'E')) {
    ++i;
    if (i < text_.size() && (text_[i] == '+' || text_[i] == '-')) ++i;
    good = skip_digits();
  }
  if (!good) return Fail("a number");
  *digits = text_.substr(begin, i - begin);
  at_ = i;
  return true;
}

bool JsonReader::ReadWord(absl::string_view word) {
  if (!ok()) return false;
  SkipSpace();
  if (text_.substr(at_, word.size()) != word) return Fail(word);
  at_ += word.size();
  return true;
}

bool JsonReader::ReadBool(bool* value) {
  if (!ok()) return false;
  if (Next() != Kind::kBool) return Fail("true or false");
  *value = text_[at_] == 't';
  return ReadWord(*value ? "true" : "false");
}

bool JsonReader::Skip(size_t* scalars, size_t* string_bytes) {
  const size_t outer = depth_;
  absl::string_view text;
  std::string scratch;
  bool flag = false;
  do {
    const Kind kind = Next();
    const size_t begin = at_;
    if (kind == Kind::kObject) EnterObject();
    if (kind == Kind::kArray) EnterArray();
    if (kind == Kind::kString) ReadString(&scratch, &text);
    if (kind == Kind::kNumber) ReadNumber(&text);
    if (kind == Kind::kBool) ReadBool(&flag);
    if (kind == Kind::kNull) ReadNull();
    if (kind == Kind::kOther) Fail("a value");
    const bool is_string = kind == Kind::kString;
    if (string_bytes != nullptr && is_string) *string_bytes += at_ - begin - 2;  // without quotes
    const bool is_scalar = kind != Kind::kObject && kind != Kind::kArray;
    if (scalars != nullptr && is_scalar) ++*scalars;
    // On to the next value, out of everything that ends here.
    while (ok() && depth_ > outer && !(is_object_[depth_] ? NextKey(&text) : NextElement())) {
    }
  } while (ok() && depth_ > outer);
  return ok();
}

bool JsonReader::ExpectEnd() {
  if (!ok()) return false;
  SkipSpace();
  return AtEnd() || Fail("nothing after the value");
}

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
  const auto parse = [text](auto* value) {
    const char* const end = text.data() + text.size();
    const std::from_chars_result result = std::from_chars(text.data(), end, *value);
    return result.ec == std::errc() && result.ptr == end;
  };
  JsonNumber number;
  int64_t as_signed = 0;
  uint64_t as_unsigned = 0;
  if (parse(&as_signed)) {
    number.as_signed = as_signed;
    if (as_signed >= 0) number.as_unsigned = static_cast<uint64_t>(as_signed);
    number.real = static_cast<double>(as_signed);
  } else if (parse(&as_unsigned)) {
    number.as_unsigned = as_unsigned;
    number.real = static_cast<double>(as_unsigned);
  } else {
    // from_chars does not tell what is too small from what is too large.
    if (!parse(&number.real)) static_cast<void>(absl::SimpleAtod(text, &number.real));
    number = JsonNumberOf(number.real);
  }
  number.text = text == "-0" ? "0" : text;
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
  if (!IsValidUtf8({seen.data(), seen.size()})) {
    return JsonSyntaxError(text, absl::OkStatus());
  }
  if (status.ok() || errors == JsonErrors::kInOrder) return status;
  return JsonSyntaxError(text, status);
}

}  // namespace sru::server::rest
