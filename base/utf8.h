// Checks that bytes are UTF-8.
#ifndef SRU_BASE_UTF8_H_
#define SRU_BASE_UTF8_H_

#include <cstddef>
#include <string_view>

namespace sru {

// Offset of the first byte that is not part of valid UTF-8 (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF); text.size() if all of it is valid.
size_t FindInvalidUtf8(std::string_view text);

}  // namespace sru

#endif  // SRU_BASE_UTF8_H_
