#include "models/text/unicode_word_tokenizer.h"

#include <utf8proc.h>

#include <string>

#include "base/status.h"
#include "models/text/code_point.h"
#include "models/text/lower_case.h"
#include "models/text/white_space.h"

namespace sru::models {
namespace {

bool IsWordCodePoint(int32_t code_point) {
  if (code_point < 0x80) {
    const int32_t lower = code_point | 0x20;
    return (lower >= 'a' && lower <= 'z') || (code_point >= '0' && code_point <= '9');
  }
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status UnicodeWordTokenizer::Split(std::string_view text, size_t max_tokens,
                                         absl::FunctionRef<void(const TextSpan&)> sink) {
  SRU_RETURN_UNLESS_OK(CheckUtf8(text));
  TextSpan token;  // the last code point, or the run that it belongs to
  const auto advance = [&] {
    token.end_byte += static_cast<uint32_t>(CodePointBytes(text[token.end_byte]));
    ++token.end_char;
  };
  for (size_t tokens = 0; tokens < max_tokens && token.end_byte < text.size();) {
    token.begin_byte = token.end_byte;
    token.begin_char = token.end_char;
    if (WhitespaceBytes(text, token.begin_byte) != 0) {
      advance();
      continue;
    }
    const bool is_word = IsWordCodePoint(CodePointAt(text, token.begin_byte));
    advance();
    while (is_word && token.end_byte < text.size() &&
           IsWordCodePoint(CodePointAt(text, token.end_byte))) {
      advance();
    }
    sink(token);
    ++tokens;
  }
  return absl::OkStatus();
}

absl::Status UnicodeWordTokenizer::AppendTokens(std::string_view text, TokenSink* sink) const {
  return Split(text, sink->most_looked_at(), [&](const TextSpan& token) {
    if (sink->is_full()) return;
    sink->Add(Lookup(token.Of(text)), token.begin_byte, token.end_byte);
  });
}

int32_t UnicodeWordTokenizer::Lookup(std::string_view token) const {
  if (!lowercase_) return VocabularyTokenizer::Lookup(token);
  std::string lowered;
  AppendLowerCase(token, &lowered);
  return VocabularyTokenizer::Lookup(lowered);
}

}  // namespace sru::models
