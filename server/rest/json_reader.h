// JsonReader: reads a JSON text (RFC 8259) value by value, in place, so that an array of a million
// numbers costs no more memory than the text. The caller says what it wants next:
//
//   JsonReader reader(text);
//   absl::string_view key;
//   if (reader.EnterObject()) {
//     while (reader.NextKey(&key)) {
//       if (key == "shape") ... else reader.Skip();
//     }
//   }
//   reader.ExpectEnd();
//   if (!reader.ok()) return reader.status();
//
// The first error stays: from then on every function returns false. Errors are kInvalidArgument and
// name the byte; kCancelled when the thread's work is to end (server/base/interruption.h). Keys
// that come twice are the caller's to refuse. Nothing is recursive, and nesting deeper than
// kMaxDepth is an error.
//
// Not thread-safe.
#ifndef SRU_SERVER_REST_JSON_READER_H_
#define SRU_SERVER_REST_JSON_READER_H_

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace sru::server::rest {

class JsonReader {
 public:
  static constexpr size_t kMaxDepth = 32;

  // What the next value is by its first character; kOther: no value begins here.
  enum class Kind { kObject, kArray, kString, kNumber, kBool, kNull, kOther };

  // `text` must be valid UTF-8 and outlive the reader. Offsets of errors count from its beginning.
  explicit JsonReader(absl::string_view text) : text_(text) {}
  JsonReader(const JsonReader&) = delete;
  JsonReader& operator=(const JsonReader&) = delete;

  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }
  // Where the text stops being JSON; npos: nowhere so far. Deep nesting is an error, but JSON.
  size_t error_at() const { return error_at_; }

  // Skips white space.
  Kind Next();
  // Offset of the next value, once Next() was called.
  size_t offset() const { return at_; }
  // The next value, as an error shows it: its first characters in quotes, or "an array", "an
  // object", "the end".
  std::string Found();

  bool EnterObject() { return Enter('{', "an object"); }
  // The next key of the innermost object, valid until the next call. False at the object's end,
  // which is taken.
  bool NextKey(absl::string_view* key) { return NextName(key) && ReadColon(); }
  // Its two parts, for who refuses a key before it looks at what follows.
  bool NextName(absl::string_view* key) {
    return NextItem('}', "',' or '}'") && ReadString(&key_, key);
  }
  bool ReadColon() { return Take(':', "':' after the key"); }
  bool EnterArray() { return Enter('[', "an array"); }
  // Whether the innermost array has another value, which follows. False at the array's end, which
  // is taken.
  bool NextElement() { return NextItem(']', "',' or ']'"); }

  // The string without its quotes and escapes: a part of the text, or of `*scratch` if it has
  // escapes.
  bool ReadString(std::string* scratch, absl::string_view* value);
  // The characters of a number, which have the form of one.
  bool ReadNumber(absl::string_view* digits);
  bool ReadBool(bool* value);
  bool ReadNull() { return ReadWord("null"); }

  // Passes over any value and checks its form. Adds to `*scalars` the strings, numbers and the like
  // in it, and to `*string_bytes` the bytes of its strings with their escapes; both may be null.
  bool Skip(size_t* scalars = nullptr, size_t* string_bytes = nullptr);

  // Nothing but white space may follow.
  bool ExpectEnd();

 private:
  bool Fail(absl::string_view expected);
  bool Enter(char bracket, absl::string_view what);
  // What NextKey() and NextElement() have in common: the end of the innermost value, or the comma.
  bool NextItem(char closing, absl::string_view expected);
  // This character must come next.
  bool Take(char character, absl::string_view what);
  bool ReadWord(absl::string_view word);
  // Passes over a string; `*escapes`: it has some.
  bool SkipString(absl::string_view* inside, bool* escapes);
  bool Unescape(absl::string_view inside, std::string* value);
  void SkipSpace();
  bool AtEnd() const { return at_ == text_.size(); }

  const absl::string_view text_;
  size_t at_ = 0;
  size_t depth_ = 0;
  size_t items_ = 0;  // of all objects and arrays, so far
  std::bitset<kMaxDepth + 1>
      has_items_;  // by depth: whether a comma must come before the next item
  std::bitset<kMaxDepth + 1> is_object_;  // by depth
  std::string key_;
  absl::Status status_;
  size_t error_at_ = absl::string_view::npos;
};

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

#endif  // SRU_SERVER_REST_JSON_READER_H_
