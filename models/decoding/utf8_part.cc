#include "models/decoding/utf8_part.h"

namespace sru::models {

Utf8Part FirstUtf8Part(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {Utf8Part::kCharacter, 1};
  // Table 3-7 of the standard: how many bytes, and what the second one may be.
  size_t length = 0;
  unsigned char least = 0x80;
  unsigned char most = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) least = 0xA0;
    if (lead == 0xED) most = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) least = 0x90;
    if (lead == 0xF4) most = 0x8F;
  } else {
    return {Utf8Part::kBroken, 1};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Part::kIncomplete, i};
    if (byte(i) < least || byte(i) > most) return {Utf8Part::kBroken, i};
    least = 0x80;
    most = 0xBF;
  }
  return {Utf8Part::kCharacter, length};
}

}  // namespace sru::models
