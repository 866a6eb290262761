#include "server/translation/sentences.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>

#include "absl/algorithm/container.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "base/utf8.h"
#include "server/translation/characters.h"
#include "unicode/brkiter.h"
#include "unicode/locid.h"
#include "unicode/uchar.h"
#include "unicode/unistr.h"
#include "unicode/ures.h"
#include "unicode/utext.h"

namespace sru::server::translation {
namespace {

struct WordsOfLanguage {
  const char* language;
  const char* words;
};
// Abbreviations that ICU's list of the language lacks; "": of any language.
constexpr WordsOfLanguage kAbbreviations[] = {
    {"",
     "Dr. Drs. e.g. Gen. Gov. Hon. i.e. Jr. Messrs. Mr. Mrs. Ms. Mt. Prof. Rev. Sen. Sgt. Sr. St. "
     "vs. dr. drs. mr. mrs. prof."},
    {"cs", "doc. ing. mgr. např. p. sv. tj. tzv."},
    {"en", "Co. Corp. Fig. Figs. Inc. Ltd. a.m. al. cf. p.m."},
    {"nl", "bijv. dhr. ds. ing. ir. mevr. mw. o.a."},
    {"pl", "bp. inż. ks. m.in. mgr. np. płk. tj. tzw. ul. św."},
    {"sk", "doc. ing. mgr. napr. p. sv. tj. tzv."}};
// Abbreviations of ICU's list of the language that are ordinary words as well, and so may end a
// sentence.
constexpr WordsOfLanguage kOrdinaryWords[] = {
    {"de", "Akt. Ben. Do. Max. Mo. PIN. Port. So. Test. am."},
    {"en",
     "Act. All. As. By. Card. Do. Go. Hat. In. Is. Jam. Job. Joe. Link. Long. OK. Ok. On. Or. PC. "
     "Pro. To. Up."},
    {"es", "Bien. Sol. mar."},
    {"fr", "jeu. mer."},
    {"pt", "mar."}};
// Abbreviations that stand before numbers.
constexpr const char* kCounted[] = {"Art.", "No.", "Nos.", "Nr.", "p.", "pp."};
// Languages that write ordinal numbers with a full stop.
constexpr const char* kWithOrdinals[] = {"bs", "cs", "da", "de", "et", "fi", "hr", "hu", "is", "lb",
                                         "lv", "nb", "nn", "no", "pl", "sk", "sl", "sr", "tr"};
constexpr size_t kLongestAbbreviation = 24;

// The rules of a language.
struct LanguageRules {
  std::set<std::string, std::less<>> abbreviations;
  bool has_ordinals = false;
  std::unique_ptr<icu::BreakIterator> iterator;
};

// ICU's own iterator of these takes "er." for "r.", which is one.
void AddIcusAbbreviations(const std::string& language, std::set<std::string, std::less<>>* all) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::LocalUResourceBundlePointer rules(
      ures_open(U_ICUDATA_NAME "-brkitr", language.c_str(), &error));
  if (error == U_USING_DEFAULT_WARNING) return;  // another language's
  icu::LocalUResourceBundlePointer list(
      ures_getByKey(rules.getAlias(), "exceptions", nullptr, &error));
  list.adoptInstead(ures_getByKey(list.getAlias(), "SentenceBreak", nullptr, &error));
  if (U_FAILURE(error) != 0) return;  // a language without a list
  while (ures_hasNext(list.getAlias()) != 0) {
    int32_t length = 0;
    const UChar* const text = ures_getNextString(list.getAlias(), &length, nullptr, &error);
    if (U_FAILURE(error) != 0) return;
    std::string words;
    icu::UnicodeString(text, length).toUTF8String(words);
    for (const absl::string_view word : absl::StrSplit(words, ' ')) all->emplace(word);
  }
}

void AddAbbreviations(const std::string& language, std::set<std::string, std::less<>>* all) {
  AddIcusAbbreviations(language, all);
  for (const auto& [of, words] : kOrdinaryWords) {
    if (language != of) continue;
    for (const absl::string_view word : absl::StrSplit(words, ' ')) all->erase(std::string(word));
  }
  for (const auto& [of, words] : kAbbreviations) {
    if (*of != '\0' && language != of) continue;
    for (const absl::string_view word : absl::StrSplit(words, ' ')) all->emplace(word);
  }
}

// Rules of the languages of models. ICU takes milliseconds to make an iterator, which serves one
// thread.
LanguageRules& RulesOf(const std::string& language) {
  thread_local std::map<std::string, LanguageRules> all;
  const auto [entry, is_new] = all.try_emplace(language);
  LanguageRules& rules = entry->second;
  if (!is_new) return rules;
  AddAbbreviations(language, &rules.abbreviations);
  rules.has_ordinals = absl::c_linear_search(kWithOrdinals, language);
  UErrorCode error = U_ZERO_ERROR;
  rules.iterator.reset(
      icu::BreakIterator::createSentenceInstance(icu::Locale(language.c_str()), error));
  if (U_FAILURE(error) != 0) rules.iterator = nullptr;
  return rules;
}

TextRange Trimmed(std::string_view text, TextRange range) {
  while (range.begin < range.end && IsSpaceAt(text, range.begin)) {
    range.begin = After(text, range.begin);
  }
  while (range.begin < range.end && IsSpaceAt(text, Before(text, range.end))) {
    range.end = Before(text, range.end);
  }
  return range;
}

bool IsAscii(char byte) { return (byte & 0x80) == 0; }

bool HasLetter(std::string_view text, TextRange range) {
  for (size_t at = range.begin; at < range.end; at = After(text, at)) {
    if (u_isalpha(CharacterAt(text, at)) != 0) return true;
  }
  return false;
}

void Add(std::string_view text, TextRange range, std::vector<TextRange>* ranges) {
  range = Trimmed(text, range);
  // Models lose emojis and marks of a list. With a space behind them they are no part of the
  // sentence.
  constexpr uint32_t kMarks =
      U_GC_SO_MASK | U_GC_SM_MASK | U_GC_SK_MASK | U_GC_CF_MASK | U_GC_M_MASK | U_GC_PD_MASK;
  for (size_t at = range.begin; at < range.end; at = After(text, at)) {
    const UChar32 c = CharacterAt(text, at);
    if (IsSpaceAt(text, at)) {
      range.begin = After(text, at);
    } else if ((U_GET_GC_MASK(c) & kMarks) == 0 && c != '#' && c != '*' && c != 0x2022) {
      break;
    }
  }
  if (HasLetter(text, range)) ranges->push_back(range);
}

// False if the full stop that the range ends with is that of an abbreviation, of initials or of a
// number that counts. `next`: what follows.
bool EndsSentence(std::string_view text, TextRange range, UChar32 next,
                  const LanguageRules& rules) {
  if (range.begin == range.end || text[range.end - 1] != '.') return true;
  size_t begin = range.end;
  while (begin > range.begin && range.end - begin < kLongestAbbreviation &&
         !IsSpaceAt(text, Before(text, begin))) {
    begin = Before(text, begin);
  }
  while (begin + 1 < range.end && u_ispunct(CharacterAt(text, begin)) != 0) {
    begin = After(text, begin);
  }
  const std::string_view word = text.substr(begin, range.end - begin);
  if (word.size() < 2) return true;
  if (rules.abbreviations.count(word) > 0) return false;
  if (u_isdigit(next) != 0 && absl::c_linear_search(kCounted, word)) return false;
  const std::string_view number = word.substr(0, word.size() - 1);
  if (rules.has_ordinals &&
      ((number.size() <= 2 && number.find_first_not_of("0123456789") == std::string_view::npos) ||
       number.find_first_not_of("IVXLC") == std::string_view::npos)) {
    return false;
  }
  const size_t last = Before(text, range.end - 1);
  return u_isupper(CharacterAt(text, last)) == 0 ||
         (last > begin && text[last - 1] != '.' && text[last - 1] != '-');
}

// `text` has no line ends where sentences may go over them.
void SplitBySentences(std::string_view text, const LanguageRules& rules,
                      std::vector<TextRange>* ranges) {
  icu::BreakIterator* const iterator = rules.iterator.get();
  UErrorCode error = U_ZERO_ERROR;
  UText* const opened =
      utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &error);
  iterator->setText(opened, error);
  size_t begin = 0;
  if (U_FAILURE(error) == 0) {
    iterator->first();
    for (int32_t end = iterator->next(); end != icu::BreakIterator::DONE; end = iterator->next()) {
      const auto at = static_cast<size_t>(end);
      const TextRange sentence = Trimmed(text, {begin, at});
      begin = sentence.begin;
      // ICU also breaks after the ? of an address or of code.
      if (at < text.size() && sentence.end == at && IsAscii(text[at - 1]) && IsAscii(text[at])) {
        continue;
      }
      const bool ends_line =
          text.substr(sentence.end, at - sentence.end).find_first_of("\r\n") != text.npos;
      if (!ends_line && at < text.size() &&
          !EndsSentence(text, sentence, CharacterAt(text, at), rules)) {
        continue;
      }
      Add(text, sentence, ranges);
      begin = at;
    }
  }
  Add(text, {begin, text.size()}, ranges);
  static const auto* const nothing = new icu::UnicodeString();
  iterator->setText(*nothing);  // it keeps a view
  utext_close(opened);
}

// Where a range is cut: before the word in its middle, or within a word that is longer than a
// quarter of it. Its beginning: nowhere.
size_t CutOf(std::string_view text, TextRange range) {
  const size_t size = range.end - range.begin;
  size_t middle = range.begin + size / 2;
  while (ContinuesUtf8(text[middle])) --middle;
  for (size_t cut = middle; cut > range.begin + size / 4; cut = Before(text, cut)) {
    if (IsSpaceAt(text, Before(text, cut))) return cut;
  }
  return middle;
}

}  // namespace

std::vector<TextRange> SplitSentences(std::string_view text, const std::string& language,
                                      Splitting splitting) {
  std::vector<TextRange> ranges;
  // Markup can have a million such texts. ICU takes a microsecond for each.
  if (!HasLetter(text, {0, text.size()})) return ranges;
  const LanguageRules& rules = RulesOf(language);
  if (splitting == Splitting::kNone || rules.iterator == nullptr) {
    Add(text, {0, text.size()}, &ranges);
    return ranges;
  }
  std::string line;
  if (splitting == Splitting::kNoNewlines) {  // by the rules, a line's end ends a sentence
    line = text;
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    text = line;
  }
  SplitBySentences(text, rules, &ranges);
  return ranges;
}

absl::Status CutSentence(std::string_view text, TextRange sentence,
                         const models::Tokenizer& tokenizer, size_t max_tokens,
                         std::vector<TextRange>* parts) {
  // Halves of halves: each level reads the sentence once, up to its limit of tokens.
  std::vector<TextRange> open = {sentence};
  while (!open.empty()) {
    const TextRange range = open.back();
    open.pop_back();
    const std::string_view part = text.substr(range.begin, range.end - range.begin);
    SRU_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(part, max_tokens + 1));
    const size_t cut = ids.size() > max_tokens ? CutOf(text, range) : range.begin;
    if (cut > range.begin) {
      open.push_back({cut, range.end});
      open.push_back({range.begin, cut});
    } else {
      Add(text, range, parts);
    }
  }
  return absl::OkStatus();
}

}  // namespace sru::server::translation
