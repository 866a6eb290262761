#include "models/text/word_tokenizer.h"

#include <utility>

namespace sru::models {

WordTokenizer::WordTokenizer(const PreprocessingConfig& preprocessing,
                             std::unique_ptr<Vocabulary> vocabulary, int32_t oov_id)
    : preprocessor_(preprocessing), vocabulary_(std::move(vocabulary)), oov_id_(oov_id) {}

absl::Status WordTokenizer::AppendIds(std::string_view text, size_t max_tokens,
                                      std::vector<int32_t>* ids) const {
  return preprocessor_.Split(text, max_tokens,
                             [&](std::string_view word) { ids->push_back(Lookup(word)); });
}

}  // namespace sru::models
