// White space as Python's str.isspace() has it: U+0009 to U+000D, U+001C to U+0020, U+0085, U+00A0,
// U+1680, U+2000 to U+200A, U+2028, U+2029, U+202F, U+205F, U+3000.
#ifndef SRU_MODELS_TEXT_WHITE_SPACE_H_
#define SRU_MODELS_TEXT_WHITE_SPACE_H_

#include <cstddef>
#include <string_view>

namespace sru::models {

// Bytes of the white space character of Python's str.isspace() that starts at `position`; 0 where
// none does. `text` is valid UTF-8, so what its first byte announces is there, and no byte within a
// character looks like a first one.
//
// By hand rather than with RE2, which makes parts of a pattern at its first match under Abseil's
// call_once: an allocation that fails there leaves all later matches waiting for ever.
inline size_t WhitespaceBytes(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return (first >= 0x09 && first <= 0x0d) || (first >= 0x1c && first <= 0x20) ? 1 : 0;
  }
  switch (first) {
    case 0xc2:  // U+0085, U+00A0
      return byte(1) == 0x85 || byte(1) == 0xa0 ? 2 : 0;
    case 0xe1:  // U+1680
      return byte(1) == 0x9a && byte(2) == 0x80 ? 3 : 0;
    case 0xe2:  // U+2000 to U+200A, U+2028, U+2029, U+202F; U+205F
      if (byte(1) == 0x81) return byte(2) == 0x9f ? 3 : 0;
      return byte(1) == 0x80 &&
                     (byte(2) <= 0x8a || byte(2) == 0xa8 || byte(2) == 0xa9 || byte(2) == 0xaf)
                 ? 3
                 : 0;
    case 0xe3:  // U+3000
      return byte(1) == 0x80 && byte(2) == 0x80 ? 3 : 0;
    default:
      return 0;
  }
}

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_WHITE_SPACE_H_
