// The key "translator" of config.json (FORMAT.md): a Transformer whose feed-forward layers are
// SRUs.
#ifndef SRU_MODELS_TRANSLATOR_CONFIG_H_
#define SRU_MODELS_TRANSLATOR_CONFIG_H_

#include <string>

#include "absl/status/status.h"
#include "models/decoding/search_options.h"

namespace sru::models {

inline constexpr int kMaxPositions = 1 << 20;
inline constexpr int kNoToken = -1;

// Names are those of FORMAT.md.
struct TranslatorConfig {
  // A student as Marian publishes it (student.h); false: the paper's translator (translator.h).
  bool student = false;
  int d_model = 0;  // width of embeddings and of every layer's output
  int heads = 0;    // of each attention; divides d_model
  int d_sru = 0;    // outputs of each SRU layer, of both directions together
  int encoder_layers = 0;
  int decoder_layers = 0;
  bool bidirectional_encoder = false;  // d_sru is even then
  bool shared_embeddings = false;      // one table for source and target
  int source_vocabulary = 0;
  int target_vocabulary = 0;
  int pad_id = 0;
  int unk_id = 0;
  int bos_id = 0;  // kNoToken: hypotheses begin with a row of zeros
  int eos_id = 0;
  int source_end_id = kNoToken;  // added to every source; kNoToken: nothing is
  int max_positions = 0;         // longest source, and longest target with its BOS, in tokens
  // A student's; d_sru is d_model then.
  int d_ffn = 0;              // of its feed-forward layers
  bool int8_weights = false;  // the weights of products and the tables are int8
  // Pieces above which a sentence of a text is cut into parts; 0: never. As Bergamot has it:
  // published models were trained on shorter sentences.
  int max_sentence_tokens = 127;
  // The default search. num_hypotheses is 1.
  SearchOptions search;
  // For users, such as "en"; may be empty.
  std::string source_language;
  std::string target_language;
};

struct ModelConfig;
class ObjectReader;

// Reads the keys of a translator's config.json. kInvalidArgument as ParseModelConfig() has it.
absl::Status ReadTranslatorKeys(ObjectReader& root, ModelConfig* config);

}  // namespace sru::models

#endif  // SRU_MODELS_TRANSLATOR_CONFIG_H_
