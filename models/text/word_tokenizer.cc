#include "models/text/word_tokenizer.h"

namespace sru::models {
namespace {

constexpr size_t kBytesPerWord = 4;  // about; a guess that is too high costs a reallocation

}  // namespace

absl::Status WordTokenizer::AppendTokens(std::string_view text, TokenSink* sink) const {
  sink->Reserve(text.size() / kBytesPerWord + 1);
  return preprocessor_.Split(text, sink->most_looked_at(),
                             [&](std::string_view word, size_t begin, size_t end) {
                               if (!sink->is_full()) sink->Add(Lookup(word), begin, end);
                             });
}

}  // namespace sru::models
