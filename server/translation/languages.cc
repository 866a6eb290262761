#include "server/translation/languages.h"

#include <cld2/public/compact_lang_det.h>
#include <cld2/public/encodings.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "base/utf8.h"
#include "models/model.h"
#include "server/base/log.h"
#include "unicode/locid.h"
#include "unicode/unistr.h"

namespace sru::server::translation {
namespace {

constexpr size_t kLongestCode = 35;  // what BCP 47 asks implementations for
constexpr char kPivot[] = "en";
// The languages of Serbo-Croatian ("hbs") in Latin script. Callers and the detection of languages
// use their codes.
constexpr const char* kSerboCroatian[] = {"bs", "hr", "sr-Latn"};

bool IsSerboCroatian(const std::string& code) {
  return absl::EqualsIgnoreCase(code, "hbs") || absl::EqualsIgnoreCase(code, "sh");
}

// "en" for "eng": callers expect the code of two letters if there is one. Other codes stay as they
// are.
std::string ShortCode(const std::string& code) {
  const icu::Locale locale = icu::Locale::createCanonical(code.c_str());
  UErrorCode error = U_ZERO_ERROR;
  const size_t size = code.find_first_of("-_");
  const bool is_shorter = (size == std::string::npos ? code.size() : size) == 3 &&
                          std::strlen(locale.getLanguage()) == 2;
  return is_shorter ? locale.toLanguageTag<std::string>(error) : code;
}

struct CodeAndKey {
  std::string code;
  LanguageKey key;
};

// A key takes ICU microseconds, and a catalog is made for each request. Models are few, so the
// table stays small. A thread logs a wrong code once.
const CodeAndKey& Cached(const std::string& code) {
  thread_local std::map<std::string, CodeAndKey> all;
  const auto [entry, is_new] = all.try_emplace(code);
  if (!is_new) return entry->second;
  entry->second.key = KeyOf(code);
  if (!entry->second.key.empty()) {
    entry->second.code = ShortCode(code);
  } else if (!code.empty()) {
    Log(LogLevel::kWarning, "not a language's code: its model takes no part in translating texts",
        {{"language", code}});
  }
  return entry->second;
}
const LanguageKey& CachedKey(const std::string& code) { return Cached(code).key; }

// The model of this name with the greatest version stands last in the registry's list.
bool IsLatest(const std::vector<std::shared_ptr<lifecycle::ServedModel>>& all, size_t i) {
  return i + 1 == all.size() || all[i + 1]->name != all[i]->name;
}

}  // namespace

LanguageKey KeyOf(absl::string_view code) {
  const bool good = !code.empty() && code.size() <= kLongestCode && absl::ascii_isalpha(code[0]) &&
                    std::all_of(code.begin(), code.end(), [](char c) {
                      return absl::ascii_isalnum(c) || c == '-' || c == '_';
                    });
  if (!good) return {};
  icu::Locale locale = icu::Locale::createCanonical(std::string(code).c_str());
  UErrorCode error = U_ZERO_ERROR;
  locale.addLikelySubtags(error);
  if (U_FAILURE(error) != 0 || locale.isBogus() != 0) return {};
  LanguageKey key{locale.getLanguage(), locale.getScript(), locale.getCountry()};
  if (key.language == "no") key.language = "nb";  // the usual form of Norwegian
  return key;
}

int MatchOf(const LanguageKey& a, const LanguageKey& b) {
  if (a.empty() || a.language != b.language || a.script != b.script) return 0;
  return a.region == b.region ? 2 : 1;
}

std::string LanguageName(const std::string& code) {
  icu::UnicodeString name;
  icu::Locale::createCanonical(code.c_str()).getDisplayName(icu::Locale::getEnglish(), name);
  std::string text;
  return name.toUTF8String(text);
}

bool HasSpaces(const LanguageKey& key) {
  static const auto* const kWithout =
      new std::set<std::string>{"zh", "yue", "ja", "th", "lo", "km", "my", "bo", "dz", "wuu"};
  return kWithout->count(key.language) == 0;
}

std::vector<DetectedLanguage> DetectLanguages(std::string_view text) {
  text = CutUtf8(text, kMostDetectedBytes);
  const CLD2::CLDHints hints = {nullptr, nullptr, CLD2::UNKNOWN_ENCODING, CLD2::UNKNOWN_LANGUAGE};
  CLD2::Language languages[3];
  int percents[3];
  double scores[3];
  int text_bytes = 0;
  bool is_reliable = false;
  CLD2::ExtDetectLanguageSummary(text.data(), static_cast<int>(text.size()),
                                 /*is_plain_text=*/true, &hints, CLD2::kCLDFlagBestEffort,
                                 languages, percents, scores, nullptr, &text_bytes, &is_reliable);
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

LanguageCatalog::LanguageCatalog(const lifecycle::ModelRegistry& registry,
                                 const std::function<bool(absl::string_view model)>& may_use) {
  const std::vector<std::shared_ptr<lifecycle::ServedModel>> all = registry.List();
  std::vector<TranslatorModel> of_several;
  for (size_t i = 0; i < all.size(); ++i) {
    const models::Model& model = *all[i]->model;
    const models::TranslatorConfig& config = model.config().translator;
    if (!IsLatest(all, i) || model.task() != models::Task::kTranslator ||
        model.tokenizer() == nullptr || CachedKey(config.source_language).empty() ||
        CachedKey(config.target_language).empty()) {
      continue;
    }
    const CodeAndKey& source = Cached(config.source_language);
    const CodeAndKey& target = Cached(config.target_language);
    if (!IsSerboCroatian(config.source_language)) {
      models_.push_back({source.code, target.code, source.key, target.key, all[i]});
      continue;
    }
    for (const char* const code : kSerboCroatian) {
      of_several.push_back({code, target.code, CachedKey(code), target.key, all[i]});
    }
  }
  // The model of one language goes before that of several.
  models_.insert(models_.end(), of_several.begin(), of_several.end());
  if (may_use == nullptr) return;
  std::stable_partition(models_.begin(), models_.end(),
                        [&](const TranslatorModel& model) { return may_use(model.served->name); });
}

const TranslatorModel* LanguageCatalog::Find(const LanguageKey& source,
                                             const LanguageKey& target) const {
  const TranslatorModel* best = nullptr;
  int best_match = 0;
  for (const TranslatorModel& model : models_) {
    const int from = MatchOf(model.source_key, source);
    const int to = MatchOf(model.target_key, target);
    if (from == 0 || to == 0 || from + to <= best_match) continue;
    best = &model;
    best_match = from + to;
  }
  return best;
}

absl::StatusOr<std::vector<TranslatorModel>> LanguageCatalog::Path(
    const LanguageKey& source, const LanguageKey& target) const {
  if (MatchOf(source, target) != 0) return std::vector<TranslatorModel>();
  if (const TranslatorModel* const model = Find(source, target)) {
    return std::vector<TranslatorModel>{*model};
  }
  const LanguageKey pivot = CachedKey(kPivot);
  const TranslatorModel* const first = Find(source, pivot);
  const TranslatorModel* const second = Find(pivot, target);
  if (first == nullptr || second == nullptr) {
    return InvalidArgument("no model translates from ", source.language, " into ", target.language,
                           ", nor two by way of English; sources are ",
                           absl::StrJoin(Sources(), ", "), ", targets ",
                           absl::StrJoin(Targets(), ", "));
  }
  return std::vector<TranslatorModel>{*first, *second};
}

std::vector<std::string> LanguageCatalog::Codes(std::string TranslatorModel::*side) const {
  std::set<std::string> codes;
  for (const TranslatorModel& model : models_) codes.insert(model.*side);
  return {codes.begin(), codes.end()};
}

std::vector<std::string> LanguageCatalog::TargetsOf(const std::string& source) const {
  const LanguageKey key = CachedKey(source);
  const LanguageKey pivot = CachedKey(kPivot);
  const bool through = Find(key, pivot) != nullptr;
  std::set<std::string> codes;
  for (const TranslatorModel& model : models_) {
    if (MatchOf(model.target_key, key) != 0) continue;
    if (MatchOf(model.source_key, key) != 0 || (through && MatchOf(model.source_key, pivot) != 0)) {
      codes.insert(model.target);
    }
  }
  return {codes.begin(), codes.end()};
}

std::string LanguageCatalog::FindCode(const LanguageKey& key, bool is_source) const {
  std::string code;
  int best_match = 0;
  for (const TranslatorModel& model : models_) {
    const int match = MatchOf(is_source ? model.source_key : model.target_key, key);
    if (match <= best_match) continue;
    best_match = match;
    code = is_source ? model.source : model.target;
  }
  return code;
}

}  // namespace sru::server::translation
