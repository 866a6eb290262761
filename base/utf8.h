// Bytes of UTF-8: whether they are valid, and where characters begin.
#ifndef SRU_BASE_UTF8_H_
#define SRU_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace sru {

// Offset of the first byte that is not part of valid UTF-8 (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF); text.size() if all of it is valid.
size_t FindInvalidUtf8(std::string_view text);

// Whether a byte of valid UTF-8 belongs to the character of the byte before it.
constexpr bool ContinuesUtf8(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace sru

#endif  // SRU_BASE_UTF8_H_
