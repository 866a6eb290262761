// Whether a text is valid UTF-8, by simdjson: for whole texts and bodies that the server reads.
// utf8.h finds the place of the fault. The client does not link simdjson.
#ifndef SRU_BASE_VALID_UTF8_H_
#define SRU_BASE_VALID_UTF8_H_

#include <string_view>

namespace sru {

// The same as FindInvalidUtf8(text) == text.size().
bool IsValidUtf8(std::string_view text);

}  // namespace sru

#endif  // SRU_BASE_VALID_UTF8_H_
