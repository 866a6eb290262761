// A tagger, which gives each token a label, as a program:
//
//   h_t     = the SRU layers over the embeddings of the tokens, or over features, in one direction
//           or both
//   log p_t = log softmax(W h_t + b) over the labels, of which the most probable ones leave the
//             backend
#ifndef SRU_MODELS_TAGGER_H_
#define SRU_MODELS_TAGGER_H_

#include "kernels/program.h"
#include "models/config.h"
#include "models/task_parts.h"

namespace sru::models {

struct Tagger : ProgramParts {
  kernels::AxisId tokens = kernels::kNone;
  // Inputs of tokens. One of `ids` and `features` is there.
  kernels::InputId ids = kernels::kNone;
  kernels::InputId features = kernels::kNone;  // [input_size]
  kernels::InputId counts = kernels::kNone;    // how many labels a token gets: 0 to max_labels
  // Output: [tokens][max_labels], the most probable first; a candidate's id is the label's index.
  int labels = kernels::kNone;
  int max_labels = 0;  // kMaxCandidates, or fewer if the model has fewer labels
};

// From `embedding.weight` unless the model takes features, `encoder.*`, `out.weight` and, if it is
// there, `out.bias`. A tensor that the model does not use is an error. The views are those of
// `tensors`. A Tagger.
BuiltProgram BuildTagger(const ModelConfig& config, const SafetensorsFile& tensors);

kernels::ModelSizes TaggerSizes(const ModelConfig& config);

}  // namespace sru::models

#endif  // SRU_MODELS_TAGGER_H_
