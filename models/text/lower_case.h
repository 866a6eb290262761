// Maps UTF-8 to lower case.
#ifndef SRU_MODELS_TEXT_LOWER_CASE_H_
#define SRU_MODELS_TEXT_LOWER_CASE_H_

#include <string>
#include <string_view>

namespace sru::models {

// Appends `text`, which must be valid UTF-8, with each character mapped to its simple lower case
// (one character to one, whatever its neighbors). Python's str.lower() differs for two: U+0130
// becomes "i" here and "i" with a combining dot there, and a capital sigma at the end of a word
// becomes a final sigma there.
void AppendLowerCase(std::string_view text, std::string* out);

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_LOWER_CASE_H_
