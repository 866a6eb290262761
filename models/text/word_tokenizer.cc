#include "models/text/word_tokenizer.h"

#include <algorithm>

namespace sru::models {
namespace {

constexpr size_t kBytesPerWord = 4;  // about; a guess that is too high costs a reallocation

}  // namespace

absl::Status WordTokenizer::AppendIds(std::string_view text, size_t max_tokens,
                                      std::vector<int32_t>* ids) const {
  ids->reserve(std::min(max_tokens, text.size() / kBytesPerWord + 1));
  return preprocessor_.Split(text, max_tokens,
                             [&](std::string_view word) { ids->push_back(Lookup(word)); });
}

}  // namespace sru::models
