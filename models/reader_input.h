// What a reader's program gets of a question and its passages (reader.h) beside the ids of their
// tokens: features. They take time that grows linearly with the texts, whatever they say. Tokens
// are those of a "unicode_words" tokenizer, with their places (EncodeOptions::spans).
#ifndef SRU_MODELS_READER_INPUT_H_
#define SRU_MODELS_READER_INPUT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "models/reader_config.h"
#include "models/text/tokenizer.h"

namespace sru::models {

// The hash of a word that a caller sends has a seed of the process, so that nobody can send words
// which all have the same one. The standard library's tables, unlike Abseil's, are as they were
// after an allocation that failed.
using WordHash = absl::Hash<std::string_view>;
using WordSet = std::unordered_set<std::string_view, WordHash>;

// What a caller knows of the tokens of a passage, in their order.
struct TokenTags {
  absl::Span<const int32_t> pos_ids;
  absl::Span<const int32_t> ner_ids;
  std::vector<std::string_view> lemmas;
};

// kInvalidArgument when a list has not one entry per token that the model asks for, or an id is out
// of range, or the model does not use the list. The message begins with the list as the proto names
// it: "pos_ids[3]: expected ..".
absl::Status CheckTags(const ReaderConfig& config, const TokenTags& tags, size_t num_tokens);

// The same for the lemmas of a question: "question_lemmas: expected ..".
absl::Status CheckQuestionLemmas(const ReaderConfig& config,
                                 const std::vector<std::string_view>& lemmas, size_t num_tokens);

// What the features of a passage are told of its question. Immutable once made, and thread-safe.
class QuestionFeatures {
 public:
  // Keeps views of `question` and `lemmas`, which must stay valid. `config` too.
  QuestionFeatures(const ReaderConfig& config, std::string_view question, const EncodedText& tokens,
                   const std::vector<std::string_view>& lemmas);

  // Writes [tokens][config.num_features()] to `features`, columns in the order of config.features:
  //   exact  1 if the token is a token of the question, else 0
  //   lower  the same, both in lower case (text/code_point.h)
  //   lemma  1 if the token's lemma is one of the question's, else 0; `lemmas` has passed
  //          CheckTags()
  //   tf     how often the token is in the passage, in lower case, by the number of the passage's
  //          tokens
  void Fill(std::string_view passage, const EncodedText& tokens,
            const std::vector<std::string_view>& lemmas, float* features) const;

 private:
  const ReaderConfig* config_;
  // The question's tokens in lower case, one after the other; in a place that stays when this
  // object moves.
  std::unique_ptr<const std::string> lowered_;
  WordSet exact_;
  WordSet lower_;
  WordSet lemmas_;
};

}  // namespace sru::models

#endif  // SRU_MODELS_READER_INPUT_H_
