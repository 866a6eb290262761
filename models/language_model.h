// The language model of the paper (section 4.4) as a program:
//
//   h       = the SRU layers over the embeddings of the tokens, in one direction, from the state c
//   g_t     = h_{t-1}; g_0 is the h that the state ended with    what token t is predicted from
//   log p_t = log softmax(W g_t + b)                             over the vocabulary
//
// W may be the embedding itself (config key "tied"). What comes after a sequence is predicted from
// its last h (that of the state, if it has no tokens in this batch), for any number of samples of
// one sequence:
//
//   z_b     = h of the last token of sequence b
//   log q_r = log softmax(W z_{b(r)} + b),  and a symbol that is picked from it (ops::Predict)
#ifndef SRU_MODELS_LANGUAGE_MODEL_H_
#define SRU_MODELS_LANGUAGE_MODEL_H_

#include "base/limits.h"
#include "kernels/program.h"
#include "kernels/program_executable.h"
#include "models/config.h"
#include "models/task_parts.h"

namespace sru::models {

// The program computes only what a batch asks for: Score leaves the axes of picks empty, a step of
// Generate asks for no log_probs and candidates of tokens.
struct LanguageModel : ProgramParts {
  kernels::AxisId tokens = kernels::kNone;
  kernels::AxisId sequences = kernels::kNone;    // those of tokens
  kernels::AxisId picks = kernels::kNone;        // a row for each symbol that is picked
  kernels::AxisId adjustments = kernels::kNone;  // a sequence for each row of picks, or none at all
  // Inputs of tokens.
  kernels::InputId ids = kernels::kNone;
  kernels::InputId targets = kernels::kNone;  // the token itself, -1 where none is predicted
  kernels::InputId counts = kernels::kNone;   // how many candidates a token's place has
  // Inputs of picks.
  kernels::InputId pick_sequences = kernels::kNone;  // which sequence a row goes on
  kernels::InputId sampling = kernels::kNone;
  kernels::InputId pick_counts = kernels::kNone;       // how many candidates a row has
  kernels::InputId pick_adjustments = kernels::kNone;  // of the axis `adjustments`
  // States.
  kernels::FieldId c = kernels::kNone;       // [layers][output_size]: every layer's c
  kernels::FieldId last_h = kernels::kNone;  // [output_size]: the last layer's h
  // Outputs.
  int log_probs = kernels::kNone;        // [tokens]
  int candidates = kernels::kNone;       // [tokens][max_candidates]
  int picked = kernels::kNone;           // [picks]
  int pick_candidates = kernels::kNone;  // [picks][max_candidates]
  int max_candidates = 0;                // kMaxCandidates, or a smaller vocabulary
};

// The most tokens of one step of Generate on the CPU, whatever a batch may hold: longer prompts
// come in portions anyway, products are as fast with so many rows as with more, and each worker has
// a workspace for them.
inline constexpr int kMaxStepTokens = 1024;

// The limits of a workspace of the program. `max_adjustments` are those of all picks together.
kernels::ProgramLimits LanguageModelLimits(const LanguageModel& model, int max_tokens,
                                           int max_sequences, int max_picks, int max_adjustments);

// From `embedding.weight`, `encoder.*`, `out.weight` (not with "tied") and `out.bias`. A tensor
// that the model does not use is an error. The views are those of `tensors`. A LanguageModel.
BuiltProgram BuildLanguageModel(const ModelConfig& config, const SafetensorsFile& tensors);

kernels::ModelSizes LanguageModelSizes(const ModelConfig& config);

}  // namespace sru::models

#endif  // SRU_MODELS_LANGUAGE_MODEL_H_
