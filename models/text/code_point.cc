#include "models/text/code_point.h"

#include <utf8proc.h>

namespace sru::models {

void AppendLowerCase(std::string_view text, std::string* out) {
  for (size_t at = 0; at < text.size(); at += CodePointBytes(text[at])) {
    const int32_t code_point = CodePointAt(text, at);
    if (code_point < 0x80) {
      const char c = text[at];
      out->push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
      continue;
    }
    utf8proc_uint8_t encoded[4];
    const utf8proc_ssize_t size = utf8proc_encode_char(utf8proc_tolower(code_point), encoded);
    out->append(reinterpret_cast<const char*>(encoded), static_cast<size_t>(size));
  }
}

}  // namespace sru::models
