#include "models/text/vocabulary.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/utf8.h"

namespace sru::models {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

absl::Status LineError(const std::string& source, size_t line, const std::string& what) {
  return InvalidArgument(source, ": line ", line, what);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Vocabulary>> Vocabulary::Parse(std::string contents,
                                                              int expected_size,
                                                              const std::string& source) {
  std::unique_ptr<Vocabulary> result(new Vocabulary());
  result->contents_ = std::move(contents);
  std::string_view rest = result->contents_;
  if (rest.substr(0, kByteOrderMark.size()) == kByteOrderMark) {
    return LineError(source, 1, " starts with a byte order mark; remove it");
  }
  if (const size_t invalid = FindInvalidUtf8(rest); invalid != rest.size()) {
    const auto line = 1 + std::count(rest.begin(), rest.begin() + invalid, '\n');
    return LineError(source, line, absl::StrCat(": not valid UTF-8 at byte ", invalid));
  }
  // `expected_size` comes from another file, so it must not decide how much memory is taken here.
  const size_t lines = std::count(rest.begin(), rest.end(), '\n') + 1;
  const size_t reserve = std::min<size_t>(lines, std::max(expected_size, 0));
  result->words_.reserve(reserve);
  result->ids_.reserve(reserve);
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view word = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t line = result->words_.size() + 1;
    if (word.empty()) return LineError(source, line, " is empty; expected one word per line");
    if (word.find('\r') != std::string_view::npos) {
      return LineError(source, line,
                       " has a carriage return; expected lines that end with a newline alone "
                       "(convert the file, for instance with dos2unix)");
    }
    const auto id = static_cast<int32_t>(line - 1);
    if (static_cast<int>(id) >= expected_size) {
      return InvalidArgument(source, ": expected ", expected_size,
                             " words (embedding.vocabulary_size in "
                             "config.json), found more");
    }
    const auto [it, inserted] =
        result->ids_.try_emplace(absl::string_view(word.data(), word.size()), id);
    if (!inserted) {
      return LineError(source, line, absl::StrCat(" repeats line ", it->second + 1));
    }
    result->words_.push_back(word);
  }
  if (result->size() != expected_size) {
    return InvalidArgument(source, ": expected ", expected_size,
                           " words (embedding.vocabulary_size in "
                           "config.json), found ",
                           result->size());
  }
  return result;
}

}  // namespace sru::models
