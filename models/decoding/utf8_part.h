// Splits bytes into characters of UTF-8 and parts that are none.
#ifndef SRU_MODELS_DECODING_UTF8_PART_H_
#define SRU_MODELS_DECODING_UTF8_PART_H_

#include <cstddef>
#include <string_view>

namespace sru::models {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Part {
  enum Kind {
    kCharacter,
    kBroken,      // one U+FFFD takes its place
    kIncomplete,  // the text ends here; more bytes may complete a character, else it is broken
  };
  Kind kind = kIncomplete;
  size_t bytes = 0;
};

// The part that `text`, which is not empty, begins with. A broken part is as long as the Unicode
// standard recommends ("substitution of maximal subparts", chapter 3; also the decoder of the
// WHATWG): what begins like a character up to the byte that does not go on, else one byte.
Utf8Part FirstUtf8Part(std::string_view text);

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_UTF8_PART_H_
