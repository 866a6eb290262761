#include "server/translation/detection.h"

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

#include <cstddef>

#include "base/utf8.h"
#include "unicode/locid.h"

namespace sru::server::translation {
namespace {

constexpr size_t kMostBytes = 16 << 10;

}  // namespace

std::vector<DetectedLanguage> DetectLanguages(std::string_view text, bool is_markup) {
  size_t size = text.size();
  if (size > kMostBytes) {
    size = kMostBytes;
    while (size > 0 && ContinuesUtf8(text[size])) --size;
  }
  const CLD2::CLDHints hints = {nullptr, nullptr, CLD2::UNKNOWN_ENCODING, CLD2::UNKNOWN_LANGUAGE};
  CLD2::Language languages[3];
  int percents[3];
  double scores[3];
  int text_bytes = 0;
  bool is_reliable = false;
  CLD2::ExtDetectLanguageSummary(text.data(), static_cast<int>(size), !is_markup, &hints,
                                 CLD2::kCLDFlagBestEffort, languages, percents, scores, nullptr,
                                 &text_bytes, &is_reliable);
  std::vector<DetectedLanguage> detected;
  for (int i = 0; i < 3; ++i) {
    if (languages[i] == CLD2::UNKNOWN_LANGUAGE || percents[i] == 0) continue;
    // Its "iw" is today's "he".
    UErrorCode error = U_ZERO_ERROR;
    const auto locale = icu::Locale::createCanonical(CLD2::LanguageCode(languages[i]));
    detected.push_back({locale.toLanguageTag<std::string>(error), percents[i]});
  }
  return detected;
}

}  // namespace sru::server::translation
