// Languages of texts and of translators, by their codes (BCP 47, as "en", "pt-BR", "zh_Hant"; case
// does not matter).
//
// Two codes mean the same language if ICU completes both to the same language and script: "en"
// matches "en-US", "zh" matches "zh-Hans" and "zh-TW" does not. Of several models the one of the
// same region goes first, then the first by name.
//
// A model's code of three letters counts as the one of two letters where there is one: "eng" as
// "en". The source "hbs" (Serbo-Croatian) stands for three languages in Latin script, "bs", "hr"
// and "sr-Latn", behind other models of these.
//
// Pure functions; a LanguageCatalog is immutable.
#ifndef SRU_SERVER_TRANSLATION_LANGUAGES_H_
#define SRU_SERVER_TRANSLATION_LANGUAGES_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/lifecycle/model_registry.h"

namespace sru::server::translation {

struct LanguageKey {
  std::string language;  // "" = none
  std::string script;
  std::string region;

  bool empty() const { return language.empty(); }
};

// Empty if `code` has not the form of a code.
LanguageKey KeyOf(absl::string_view code);
// 0 = other languages, 1 = the same, 2 = of the same region as well.
int MatchOf(const LanguageKey& a, const LanguageKey& b);
// In English: "Portuguese (Brazil)".
std::string LanguageName(const std::string& code);
// True if the language writes spaces between its words.
bool HasSpaces(const LanguageKey& key);

struct DetectedLanguage {
  std::string code;    // "en", "zh-Hant"
  int confidence = 0;  // how much of the text, in percent
};

// DetectLanguages() need not be given more of a text.
inline constexpr size_t kMostDetectedBytes = 16 << 10;

// The languages of a text by CLD2's tables, the most of it first; none if it says too little. Looks
// at the beginning of a long text.
std::vector<DetectedLanguage> DetectLanguages(std::string_view text);

// A translator that takes text and says its languages, by codes that have a key.
struct TranslatorModel {
  // The model's codes, of two letters where it has three and ICU knows the shorter one.
  std::string source;
  std::string target;
  LanguageKey source_key;
  LanguageKey target_key;
  std::shared_ptr<const lifecycle::ServedModel> served;
};

// The translators that are loaded.
class LanguageCatalog {
 public:
  // Models for which `may_use` is false come last.
  explicit LanguageCatalog(const lifecycle::ModelRegistry& registry,
                           const std::function<bool(absl::string_view model)>& may_use = nullptr);

  // The models that translate, one after the other: one, two by way of English, or none if both
  // languages are the same. kInvalidArgument: there are none.
  absl::StatusOr<std::vector<TranslatorModel>> Path(const LanguageKey& source,
                                                    const LanguageKey& target) const;

  // Codes without repetitions, sorted, as TranslatorModel has them.
  std::vector<std::string> Sources() const { return Codes(&TranslatorModel::source); }
  std::vector<std::string> Targets() const { return Codes(&TranslatorModel::target); }
  // The targets that can be reached from there, also through English.
  std::vector<std::string> TargetsOf(const std::string& source) const;
  // The code that models have for the language; "" = none. `is_source`: as a source.
  std::string FindCode(const LanguageKey& key, bool is_source) const;

 private:
  std::vector<std::string> Codes(std::string TranslatorModel::*side) const;
  const TranslatorModel* Find(const LanguageKey& source, const LanguageKey& target) const;

  std::vector<TranslatorModel> models_;
};

}  // namespace sru::server::translation

#endif  // SRU_SERVER_TRANSLATION_LANGUAGES_H_
