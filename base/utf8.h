// Bytes of UTF-8: whether they are valid, and where characters begin.
#ifndef SRU_BASE_UTF8_H_
#define SRU_BASE_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sru {

// Offset of the first byte that is not part of valid UTF-8 (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF); text.size() if all of it is valid.
size_t FindInvalidUtf8(std::string_view text);

// Whether a byte of valid UTF-8 belongs to the character of the byte before it.
constexpr bool ContinuesUtf8(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

// The first `most` bytes of a text, or fewer, so that no character is cut.
template <typename View>
constexpr View CutUtf8(const View& text, size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && ContinuesUtf8(text[most])) --most;
  return text.substr(0, most);
}

// How many characters valid UTF-8 has.
template <typename View>
constexpr int64_t CountUtf8(const View& text) {
  int64_t count = 0;
  for (const char byte : text) count += ContinuesUtf8(byte) ? 0 : 1;
  return count;
}

}  // namespace sru

#endif  // SRU_BASE_UTF8_H_
