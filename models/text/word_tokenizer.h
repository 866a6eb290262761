// Words of a vocabulary: preprocessing, then look-up with an id for words that it does not have.
#ifndef SRU_MODELS_TEXT_WORD_TOKENIZER_H_
#define SRU_MODELS_TEXT_WORD_TOKENIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/text/preprocessing.h"
#include "models/text/tokenizer.h"
#include "models/text/vocabulary.h"

namespace sru::models {

class WordTokenizer final : public Tokenizer {
 public:
  // `vocabulary` must not be null; requires 0 <= oov_id < vocabulary->size().
  WordTokenizer(const PreprocessingConfig& preprocessing, std::unique_ptr<Vocabulary> vocabulary,
                int32_t oov_id);

  // No preprocessing; unknown_id() when unknown.
  int32_t Lookup(std::string_view word) const override {
    const int32_t id = vocabulary_->Find(word);
    return id == Vocabulary::kNotFound ? oov_id_ : id;
  }

  int32_t unknown_id() const override { return oov_id_; }
  int size() const override { return vocabulary_->size(); }
  std::string TokenName(int32_t id) const override { return std::string(vocabulary_->word(id)); }

 private:
  absl::Status AppendIds(std::string_view text, size_t max_tokens,
                         std::vector<int32_t>* ids) const override;

  const Preprocessor preprocessor_;
  const std::unique_ptr<Vocabulary> vocabulary_;
  const int32_t oov_id_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_WORD_TOKENIZER_H_
