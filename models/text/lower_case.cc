#include "models/text/lower_case.h"

#include <utf8proc.h>

namespace sru::models {
namespace {

bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// Length in bytes of the character at `offset`; negative when it is not valid UTF-8.
utf8proc_ssize_t Decode(std::string_view text, size_t offset, utf8proc_int32_t* code_point) {
  return utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + offset),
                          static_cast<utf8proc_ssize_t>(text.size() - offset), code_point);
}

}  // namespace

void AppendLowerCase(std::string_view text, std::string* out) {
  size_t offset = 0;
  while (offset < text.size()) {
    const char c = text[offset];
    if (IsAscii(c)) {
      out->push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
      ++offset;
      continue;
    }
    utf8proc_int32_t code_point;
    const utf8proc_ssize_t length = Decode(text, offset, &code_point);
    if (length <= 0) return;  // not reached for valid text
    utf8proc_uint8_t encoded[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(utf8proc_tolower(code_point), encoded);
    out->append(reinterpret_cast<const char*>(encoded), static_cast<size_t>(size));
    offset += static_cast<size_t>(length);
  }
}

}  // namespace sru::models
