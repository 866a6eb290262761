#include "server/translation/sentences.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/mutex.h"
#include "base/status.h"
#include "base/utf8.h"
#include "server/translation/characters.h"
#include "unicode/brkiter.h"
#include "unicode/filteredbrk.h"
#include "unicode/locid.h"
#include "unicode/unistr.h"
#include "unicode/utext.h"

namespace sru::server::translation {
namespace {

// Abbreviations that ICU's lists lack, which come before names.
constexpr const char* kEnglishTitles[] = {"Dr.",   "Drs.", "Hon.", "Jr.", "Messrs.", "Mt.",
                                          "Prof.", "Rev.", "Sgt.", "Sr.", "St.",     "vs."};

std::unique_ptr<icu::BreakIterator> MakeIterator(const std::string& language) {
  UErrorCode error = U_ZERO_ERROR;
  const icu::Locale locale(language.c_str());
  std::unique_ptr<icu::BreakIterator> rules(
      icu::BreakIterator::createSentenceInstance(locale, error));
  if (U_FAILURE(error) != 0) return nullptr;
  const std::unique_ptr<icu::FilteredBreakIteratorBuilder> builder(
      icu::FilteredBreakIteratorBuilder::createInstance(locale, error));
  if (U_FAILURE(error) != 0 || builder == nullptr) return rules;  // a language without a list
  if (language == "en") {
    for (const char* const title : kEnglishTitles) {
      builder->suppressBreakAfter(icu::UnicodeString::fromUTF8(title), error);
    }
  }
  error = U_ZERO_ERROR;
  return std::unique_ptr<icu::BreakIterator>(builder->build(rules.release(), error));
}

using Iterators = std::vector<std::unique_ptr<icu::BreakIterator>>;

Mutex* PoolMutex() {
  static auto* const mutex = new Mutex();
  return mutex;
}
// By language, those of models: iterators that nobody uses now. They take ICU milliseconds to make, and copies of one share what is no
// thread's alone.
std::map<std::string, Iterators>& Pool() {
  static auto* const pool = new std::map<std::string, Iterators>();
  return *pool;
}

std::unique_ptr<icu::BreakIterator> TakeIterator(const std::string& language) {
  {
    MutexLock lock(PoolMutex());
    Iterators& iterators = Pool()[language];
    if (!iterators.empty()) {
      std::unique_ptr<icu::BreakIterator> iterator = std::move(iterators.back());
      iterators.pop_back();
      return iterator;
    }
  }
  return MakeIterator(language);
}

void GiveBackIterator(const std::string& language, std::unique_ptr<icu::BreakIterator> iterator) {
  MutexLock lock(PoolMutex());
  Pool()[language].push_back(std::move(iterator));
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

void Add(std::string_view text, TextRange range, std::vector<TextRange>* ranges) {
  range = Trimmed(text, range);
  if (range.begin < range.end) ranges->push_back(range);
}

// `text` has no line ends where sentences may go over them.
void SplitBySentences(std::string_view text, icu::BreakIterator* iterator,
                      std::vector<TextRange>* ranges) {
  UErrorCode error = U_ZERO_ERROR;
  UText* const opened =
      utext_openUTF8(nullptr, text.data(), static_cast<int64_t>(text.size()), &error);
  iterator->setText(opened, error);
  size_t begin = 0;
  if (U_FAILURE(error) == 0) {
    iterator->first();
    for (int32_t end = iterator->next(); end != icu::BreakIterator::DONE; end = iterator->next()) {
      Add(text, {begin, static_cast<size_t>(end)}, ranges);
      begin = static_cast<size_t>(end);
    }
  }
  Add(text, {begin, text.size()}, ranges);
  static const auto* const nothing = new icu::UnicodeString();
  iterator->setText(*nothing);  // it keeps a view
  utext_close(opened);
}

// Where a range is cut: before the word in its middle, or within a word that is longer than a quarter of it. Its beginning: nowhere.
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
  std::unique_ptr<icu::BreakIterator> iterator =
      splitting == Splitting::kNone ? nullptr : TakeIterator(language);
  if (iterator == nullptr) {
    Add(text, {0, text.size()}, &ranges);
  } else if (splitting == Splitting::kSentences) {
    SplitBySentences(text, iterator.get(), &ranges);  // by the rules, a line's end ends a sentence
  } else {
    std::string line(text);
    std::replace_if(
        line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
    SplitBySentences(line, iterator.get(), &ranges);
  }
  if (iterator != nullptr) GiveBackIterator(language, std::move(iterator));
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
