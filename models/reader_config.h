// What a config.json says of a document reader (FORMAT.md, key "reader"), under the names of the
// published code.
#ifndef SRU_MODELS_READER_CONFIG_H_
#define SRU_MODELS_READER_CONFIG_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"

namespace sru::models {

// What a reader is told of each token of a passage beside its id (reader_input.h), in this order.
enum class ReaderFeature { kExact, kLower, kLemma, kTf };

constexpr const char* ReaderFeatureName(ReaderFeature feature) {
  switch (feature) {
    case ReaderFeature::kExact:
      return "exact";
    case ReaderFeature::kLower:
      return "lower";
    case ReaderFeature::kLemma:
      return "lemma";
    case ReaderFeature::kTf:
      return "tf";
  }
  return "";
}

// How the vectors of a question's tokens become one (reader.h).
enum class QuestionMerge { kSelfAttention, kAverage };

constexpr const char* QuestionMergeName(QuestionMerge merge) {
  switch (merge) {
    case QuestionMerge::kSelfAttention:
      return "self_attn";
    case QuestionMerge::kAverage:
      return "avg";
  }
  return "";
}

// The stack over passages is ModelConfig::encoder, bidirectional; that over questions differs in
// its input and its number of layers.
struct ReaderConfig {
  static constexpr int kMaxTags = 65536;            // pos_size, ner_size
  static constexpr int kMaxAnswerTokens = 1 << 20;  // max_len

  int embedding_dim = 0;  // width of the embedding
  int question_layers = 0;
  std::vector<ReaderFeature> features;  // ascending, each once
  bool use_qemb = false;                // a passage's tokens are aligned with the question's
  // Embeddings of parts of speech and of named entities, whose ids the caller gives; sizes are 0
  // without.
  int pos_size = 0;
  int pos_dim = 0;
  int ner_size = 0;
  int ner_dim = 0;
  bool concat_rnn_layers = false;  // a stack gives the vectors of all its layers
  QuestionMerge question_merge = QuestionMerge::kSelfAttention;
  int max_len = 0;  // longest answer in tokens, unless the caller says otherwise

  int num_features() const { return static_cast<int>(features.size()); }
  bool has(ReaderFeature feature) const {
    return std::find(features.begin(), features.end(), feature) != features.end();
  }
  // Width of what the stack over passages reads.
  int passage_input_size() const {
    return embedding_dim * (use_qemb ? 2 : 1) + num_features() + pos_dim + ner_dim;
  }
};

struct ModelConfig;
class ObjectReader;

// Reads the keys of a reader's config.json, "reader" into config->reader. kInvalidArgument, as
// ParseModelConfig() has it.
absl::Status ReadReaderKeys(ObjectReader& root, ModelConfig* config);

}  // namespace sru::models

#endif  // SRU_MODELS_READER_CONFIG_H_
