// Which language a text is in, by CLD2's tables. Pure functions, thread-safe.
#ifndef SRU_SERVER_TRANSLATION_DETECTION_H_
#define SRU_SERVER_TRANSLATION_DETECTION_H_

#include <string>
#include <string_view>
#include <vector>

namespace sru::server::translation {

struct DetectedLanguage {
  std::string code;    // "en", "zh-Hant"
  int confidence = 0;  // how much of the text, in percent
};

// The languages of a text, the most of it first; none if it says too little. Looks at the beginning of a long text. `is_markup`: tags do not count.
std::vector<DetectedLanguage> DetectLanguages(std::string_view text, bool is_markup);

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_DETECTION_H_
