// The language model of the paper (section 4.4) as a program:
//
//   h       = the SRU layers over the embeddings of the tokens, in one direction, from the state c
//   g_t     = h_{t-1}; g_0 is the h that the state ended with    what token t is predicted from
//   log p_t = log softmax(W g_t + b)                             over the vocabulary
//
// W may be the embedding itself (config key "tied").
#ifndef SRU_MODELS_LANGUAGE_MODEL_H_
#define SRU_MODELS_LANGUAGE_MODEL_H_

#include "absl/status/statusor.h"
#include "kernels/program.h"
#include "models/config.h"
#include "models/safetensors.h"

namespace sru::models {

// Most candidates that a token can have.
inline constexpr int kMaxCandidates = 128;

// The program and the names of its parts.
struct LanguageModel {
  kernels::Program program;
  kernels::AxisId tokens = kernels::kNone;
  kernels::InputId ids = kernels::kNone;      // of the tokens
  kernels::InputId targets = kernels::kNone;  // the token itself, -1 where none is predicted
  kernels::InputId counts = kernels::kNone;   // how many candidates a token's place has
  kernels::FieldId c = kernels::kNone;        // [layers][output_size]: every layer's c
  kernels::FieldId last_h = kernels::kNone;   // [output_size]: the last layer's h
  int log_probs = kernels::kNone;             // output: [tokens]
  int candidates = kernels::kNone;            // output: [tokens][max_candidates]
  int max_candidates = 0;                     // kMaxCandidates, or a smaller vocabulary

  const kernels::StackSpec& stack() const;
};

// From `embedding.weight`, `encoder.*`, `out.weight` (not with "tied") and `out.bias`. A tensor that
// the model does not use is an error. The views are those of `tensors`.
absl::StatusOr<LanguageModel> BuildLanguageModel(const ModelConfig& config,
                                                 const SafetensorsFile& tensors);

}  // namespace sru::models

#endif  // SRU_MODELS_LANGUAGE_MODEL_H_
