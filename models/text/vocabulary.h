// The words of a model, vocab.txt (FORMAT.md): UTF-8, one word per line, line number = id from 0;
// and what tokenizers share that look words up in it.
#ifndef SRU_MODELS_TEXT_VOCABULARY_H_
#define SRU_MODELS_TEXT_VOCABULARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "models/text/tokenizer.h"

namespace sru::models {

// Immutable and thread-safe.
class Vocabulary {
 public:
  // Parses the contents of a vocab.txt that must have `expected_size` words. The last line may lack
  // its newline. kInvalidArgument with `source` and the line number (from 1) for an empty or
  // duplicate word, a carriage return, invalid UTF-8, a byte order mark, and a wrong count.
  static absl::StatusOr<std::unique_ptr<Vocabulary>> Parse(std::string contents, int expected_size,
                                                           const std::string& source);

  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  int size() const { return static_cast<int>(words_.size()); }
  // Requires 0 <= id < size().
  std::string_view word(int32_t id) const { return words_[id]; }
  // Tokenizer::kNotFound when the vocabulary does not have the word.
  int32_t Find(std::string_view word) const {
    const auto it = ids_.find(absl::string_view(word.data(), word.size()));
    return it == ids_.end() ? Tokenizer::kNotFound : it->second;
  }

 private:
  Vocabulary() = default;

  std::string contents_;  // the views below point into it
  std::vector<std::string_view> words_;
  // Abseil's own view where it is not the standard's (Debian 12): only that one has a hash.
  absl::flat_hash_map<absl::string_view, int32_t> ids_;
};

// A tokenizer whose tokens are the words of a vocabulary.
class VocabularyTokenizer : public Tokenizer {
 public:
  // `vocabulary` must not be null; requires kNotFound <= unknown_id < vocabulary->size().
  VocabularyTokenizer(std::unique_ptr<Vocabulary> vocabulary, int32_t unknown_id)
      : vocabulary_(std::move(vocabulary)), unknown_id_(unknown_id) {}

  int32_t Lookup(std::string_view token) const override {
    const int32_t id = vocabulary_->Find(token);
    return id == kNotFound ? unknown_id_ : id;
  }
  int32_t unknown_id() const final { return unknown_id_; }
  int size() const final { return vocabulary_->size(); }
  std::string TokenName(int32_t id) const final { return std::string(vocabulary_->word(id)); }

 protected:
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  const std::unique_ptr<Vocabulary> vocabulary_;
  const int32_t unknown_id_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_TEXT_VOCABULARY_H_
