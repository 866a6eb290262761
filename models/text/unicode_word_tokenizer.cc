#include <utf8proc.h>

#include <string>
#include <utility>

#include "base/status.h"
#include "models/text/code_point.h"
#include "models/text/tokenizers.h"

namespace sru::models {
namespace {

bool IsWordCodePoint(int32_t code_point) {
  if (code_point < 0x80) {
    const int32_t lower = code_point | 0x20;
    return (lower >= 'a' && lower <= 'z') || (code_point >= '0' && code_point <= '9');
  }
  // Letters, then marks, then numbers: the categories are in this order.
  const utf8proc_category_t category = utf8proc_category(code_point);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_NO;
}

class UnicodeWordTokenizer final : public VocabularyTokenizer {
 public:
  UnicodeWordTokenizer(std::unique_ptr<Vocabulary> vocabulary, int32_t oov_id, bool lowercase)
      : VocabularyTokenizer(std::move(vocabulary), oov_id), lowercase_(lowercase) {}

  int32_t Lookup(std::string_view token) const override {
    if (!lowercase_) return VocabularyTokenizer::Lookup(token);
    std::string lowered;
    AppendLowerCase(token, &lowered);
    return VocabularyTokenizer::Lookup(lowered);
  }

 private:
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override {
    return SplitUnicodeWords(text, sink->most_looked_at(), [&](const TextSpan& token) {
      if (sink->is_full()) return;
      sink->Add(Lookup(token.Of(text)), token.begin_byte, token.end_byte);
    });
  }

  const bool lowercase_;
};

}  // namespace

std::unique_ptr<Tokenizer> MakeUnicodeWordTokenizer(std::unique_ptr<Vocabulary> vocabulary,
                                                    int32_t oov_id, bool lowercase) {
  return std::make_unique<UnicodeWordTokenizer>(std::move(vocabulary), oov_id, lowercase);
}

absl::Status SplitUnicodeWords(std::string_view text, size_t max_tokens,
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
    const int32_t first = CodePointAt(text, token.begin_byte);
    advance();
    if (IsWhiteSpace(first)) continue;
    const bool is_word = IsWordCodePoint(first);
    while (is_word && token.end_byte < text.size() &&
           IsWordCodePoint(CodePointAt(text, token.end_byte))) {
      advance();
    }
    sink(token);
    ++tokens;
  }
  return absl::OkStatus();
}

}  // namespace sru::models
