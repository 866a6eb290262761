// One Unicode code point of UTF-8 after the other.
#ifndef SRU_MODELS_TEXT_CODE_POINT_H_
#define SRU_MODELS_TEXT_CODE_POINT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace sru::models {

// Bytes of the code point that starts with this byte.
inline size_t CodePointBytes(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// The code point that starts at `at`. Requires that `text` is valid UTF-8 and at < text.size().
inline int32_t CodePointAt(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const auto tail = [&](size_t i) { return byte(i) & 0x3f; };
  switch (CodePointBytes(text[at])) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1f) << 6 | tail(1);
    case 3:
      return (byte(0) & 0x0f) << 12 | tail(1) << 6 | tail(2);
    default:
      return (byte(0) & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3);
  }
}

// White space as Python's str.isspace() has it.
//
// By hand rather than with RE2, which makes parts of a pattern at its first match under Abseil's
// call_once: an allocation that fails there leaves all later matches waiting for ever.
inline bool IsWhiteSpace(int32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

// Appends `text`, which must be valid UTF-8, with each character mapped to its simple lower case
// (one character to one, whatever its neighbors). Python's str.lower() differs for two: U+0130
// becomes "i" here and "i" with a combining dot there, and a capital sigma at the end of a word
// becomes a final sigma there.
void AppendLowerCase(std::string_view text, std::string* out);

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_CODE_POINT_H_
