#include "models/tokenizer.h"

#include <utility>

#include "absl/status/status.h"

namespace sru::models {

Tokenizer::Tokenizer(const PreprocessingConfig& preprocessing,
                     std::unique_ptr<Vocabulary> vocabulary, int32_t oov_id)
    : preprocessor_(preprocessing), vocabulary_(std::move(vocabulary)), oov_id_(oov_id) {}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       size_t max_tokens) const {
  std::vector<int32_t> ids;
  absl::Status status = preprocessor_.Split(
      text, max_tokens, [&](std::string_view word) { ids.push_back(Lookup(word)); });
  if (!status.ok()) return status;
  return ids;
}

}  // namespace sru::models
