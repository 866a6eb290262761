// Text to vocabulary ids: preprocessing, then look-up with an out-of-vocabulary id.
#ifndef SRU_MODELS_TOKENIZER_H_
#define SRU_MODELS_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "models/config.h"
#include "models/preprocessing.h"
#include "models/vocabulary.h"

namespace sru::models {

// Immutable and thread-safe.
class Tokenizer {
 public:
  static constexpr size_t kNoLimit = Preprocessor::kNoLimit;

  // `vocabulary` must not be null; requires 0 <= oov_id < vocabulary->size().
  Tokenizer(const PreprocessingConfig& preprocessing, std::unique_ptr<Vocabulary> vocabulary,
            int32_t oov_id);

  // The ids of the words of `text`, at most `max_tokens` of them: the rest of the text is not read,
  // except to check its UTF-8. To learn whether a text has more than n tokens, ask for n + 1.
  // Empty when the text has no word. kInvalidArgument when it is not valid UTF-8.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text,
                                              size_t max_tokens = kNoLimit) const;

  // The id of one word that was split by the caller: no preprocessing; oov_id() when unknown.
  int32_t Lookup(std::string_view word) const {
    const int32_t id = vocabulary_->Find(word);
    return id == Vocabulary::kNotFound ? oov_id_ : id;
  }

  int32_t oov_id() const { return oov_id_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  const Preprocessor preprocessor_;
  const std::unique_ptr<Vocabulary> vocabulary_;
  const int32_t oov_id_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TOKENIZER_H_
