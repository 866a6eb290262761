// Characters of valid UTF-8 text, by their offsets. Offsets are those of characters, and inside of
// the text where one is read.
#ifndef SRU_SERVER_TRANSLATION_CHARACTERS_H_
#define SRU_SERVER_TRANSLATION_CHARACTERS_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/utf8.h"
#include "unicode/uchar.h"
#include "unicode/utf8.h"

namespace sru::server::translation {

inline UChar32 CharacterAt(std::string_view text, size_t at) {
  UChar32 character = 0;
  U8_GET(reinterpret_cast<const uint8_t*>(text.data()), 0, at, static_cast<int64_t>(text.size()),
         character);
  return character;
}

// Where the characters before and after the one at `at` begin.
inline size_t Before(std::string_view text, size_t at) {
  do --at;
  while (at > 0 && ContinuesUtf8(text[at]));
  return at;
}
inline size_t After(std::string_view text, size_t at) {
  do ++at;
  while (at < text.size() && ContinuesUtf8(text[at]));
  return at;
}

inline bool IsSpaceAt(std::string_view text, size_t at) {
  return u_isUWhiteSpace(CharacterAt(text, at)) != 0;
}

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_CHARACTERS_H_
