// Checks and maps UTF-8.
#ifndef SRU_MODELS_UTF8_H_
#define SRU_MODELS_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace sru::models {

// Offset of the first byte that is not part of valid UTF-8 (RFC 3629: no overlong forms, no
// surrogates, nothing above U+10FFFF); text.size() when all of it is valid.
size_t FindInvalidUtf8(std::string_view text);

// Appends `text`, which must be valid UTF-8, with each character mapped to its simple lower case
// (one character to one, whatever stands around it). Python's str.lower() differs for two: U+0130
// becomes "i" here and "i" with a combining dot there, and a capital sigma at the end of a word
// becomes a final sigma there.
void AppendLowerCase(std::string_view text, std::string* out);

}  // namespace sru::models

#endif  // SRU_MODELS_UTF8_H_
