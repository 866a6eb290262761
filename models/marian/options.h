// The options of a student: what the YAML `special:model.yml` in a file of weights says, and a
// decoder's configuration beside it.
#ifndef SRU_MODELS_MARIAN_OPTIONS_H_
#define SRU_MODELS_MARIAN_OPTIONS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace sru::models {

// The tensor that has the options.
inline constexpr char kMarianOptionsTensor[] = "special:model.yml";

// A Transformer encoder with an SSRU decoder, post-norm.
struct MarianOptions {
  int width = 0;  // dim-emb
  int ffn = 0;    // transformer-dim-ffn
  int heads = 0;  // divides width
  int encoder_layers = 0;
  int decoder_layers = 0;
  int source_vocabulary = 0;
  int target_vocabulary = 0;
  bool one_table = false;  // tied-embeddings-all: one table for source, target and output; else two
  int alignment_layer = 0;  // decoder layer, from 0, whose head 0 is the alignment
};

// kInvalidArgument with `source` and the key. An option that would make another graph is refused by
// name; options of other types of models, which Marian's files have as well, are ignored.
absl::StatusOr<MarianOptions> ParseMarianOptions(std::string_view yaml, const std::string& source);

// How to search, with the values of Firefox by default.
struct MarianSearch {
  int beam_size = 1;
  double normalize = 1.0;
  double word_penalty = 0.0;
  double max_length_factor = 2.0;
  int max_length_break = 128;
  bool allow_unk = false;
  bool allow_special = false;
  std::string shortlist;  // a file's name without its folders; empty: not said
};

inline constexpr double kMaxNormalize = 10;
inline constexpr double kMaxMarianWordPenalty = 100;
inline constexpr double kMaxMarianLengthFactor = 100;
inline constexpr int kMaxLengthBreak = 1 << 16;

// Sets what config*.yml or decoder.yml says. kInvalidArgument with `source` and the key.
absl::Status ReadMarianSearch(std::string_view yaml, const std::string& source,
                              MarianSearch* search);

}  // namespace sru::models

#endif  // SRU_MODELS_MARIAN_OPTIONS_H_
