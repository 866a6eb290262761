// Words of a vocabulary: preprocessing, then look-up with an id for words that it does not have.
#ifndef SRU_MODELS_TEXT_WORD_TOKENIZER_H_
#define SRU_MODELS_TEXT_WORD_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/preprocessing.h"
#include "models/text/vocabulary.h"

namespace sru::models {

class WordTokenizer final : public VocabularyTokenizer {
 public:
  // `vocabulary` must not be null; requires 0 <= oov_id < vocabulary->size().
  WordTokenizer(const PreprocessingConfig& preprocessing, std::unique_ptr<Vocabulary> vocabulary,
                int32_t oov_id)
      : VocabularyTokenizer(std::move(vocabulary), oov_id), preprocessor_(preprocessing) {}

 private:
  absl::Status AppendTokens(std::string_view text, TokenSink* sink) const override;

  const Preprocessor preprocessor_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_WORD_TOKENIZER_H_
