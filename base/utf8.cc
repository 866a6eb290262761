#include "base/utf8.h"

#include <utf8proc.h>

#include <cstdint>
#include <cstring>

namespace sru {
namespace {

bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// First byte at or after `offset` that is not ASCII, by eight bytes at a time.
size_t SkipAscii(std::string_view text, size_t offset) {
  while (offset + 8 <= text.size()) {
    uint64_t word;
    std::memcpy(&word, text.data() + offset, sizeof(word));
    if ((word & 0x8080808080808080u) != 0) break;
    offset += 8;
  }
  while (offset < text.size() && IsAscii(text[offset])) ++offset;
  return offset;
}

// Length in bytes of the character at `offset`; negative when it is not valid UTF-8.
utf8proc_ssize_t Decode(std::string_view text, size_t offset, utf8proc_int32_t* code_point) {
  return utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + offset),
                          static_cast<utf8proc_ssize_t>(text.size() - offset), code_point);
}

}  // namespace

size_t FindInvalidUtf8(std::string_view text) {
  size_t offset = SkipAscii(text, 0);
  while (offset < text.size()) {
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t length = Decode(text, offset, &code_point);
    if (length <= 0) return offset;
    offset += static_cast<size_t>(length);
    if (offset < text.size() && IsAscii(text[offset])) offset = SkipAscii(text, offset);
  }
  return offset;
}

}  // namespace sru
