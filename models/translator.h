// The translator of the paper (section 4.3) as a program: a Transformer whose feed-forward layers
// are SRUs. With LN for layer norm and MHA(q, k, v) for multi-head attention between four linear
// maps:
//
//   encoder   x = sqrt(d) E[source_t] + P[t];  each layer:
//             n = LN(x);  x += MHA(n, n, n);  x += W2 SRU(LN(x)) + b2;  at the end m = LN(x)
//   decoder   x = sqrt(d) E'[target_t] + P[t];  each layer:
//             n = LN1(x);  x += MHA(n, n, n), causal;  x += MHA(LN2(x), m, m);
//              x += W2 SRU(LN(x)) + b2, in one direction from the state c
//   output    log p_t = log softmax(G LN(x) + g)
//
// The axes are used one after the other. A sentence is encoded in one run, with all of its tokens
// on `source`, which leaves the keys and values of every context attention in its slot. Then the
// slot is on `target`, with BOS and the prefix, and then with one token at a time. A hypothesis is
// a copy of the slot: what copies have in common, such as the keys and values of the sentence, they
// share (kernels/state_arena.h). Encoding and decoding of different sentences fit into one run.
#ifndef SRU_MODELS_TRANSLATOR_H_
#define SRU_MODELS_TRANSLATOR_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "kernels/program.h"
#include "kernels/program_executable.h"
#include "models/config.h"
#include "models/task_parts.h"

namespace sru::models {

// The program computes only what a batch asks for.
struct Translator : ProgramParts {
  kernels::AxisId source = kernels::kNone;  // tokens of sentences that are encoded
  kernels::AxisId target = kernels::kNone;  // tokens of hypotheses
  // Inputs of source.
  kernels::InputId source_ids = kernels::kNone;
  // Inputs of target.
  kernels::InputId target_ids = kernels::kNone;
  kernels::InputId targets = kernels::kNone;  // the token that follows, -1 where none is predicted
  kernels::InputId counts = kernels::kNone;   // how many candidates a token's place has
  // The tokens of its hypothesis before it, BOS counted; kNone: the program knows it by a field.
  kernels::InputId target_positions = kernels::kNone;
  // kNone: every word may come next. Else those that may, a sequence of ascending ids for each
  // sentence, and the sentence of each sequence of target.
  kernels::AxisId choices = kernels::kNone;
  kernels::InputId choice_ids = kernels::kNone;
  kernels::InputId choice_map = kernels::kNone;
  // The ascending ids of the words that may be in the translations of a source, whose ids are those
  // that are encoded. Thread-safe. Empty without `choices`.
  std::function<std::vector<int32_t>(absl::Span<const int32_t> source_ids)> shortlist;
  // States, [decoder layer]: what a hypothesis has of its sentence and of its own.
  struct Layer {
    kernels::FieldId context_keys = kernels::kNone;    // [source tokens][d_model]
    kernels::FieldId context_values = kernels::kNone;  // [source tokens][d_model]
    kernels::FieldId self_keys = kernels::kNone;       // [target tokens][d_model]
    kernels::FieldId self_values = kernels::kNone;     // [target tokens][d_model]
    kernels::FieldId c = kernels::kNone;               // [d_sru]
  };
  std::vector<Layer> layers;
  // Outputs.
  int log_probs = kernels::kNone;       // [target tokens]
  int candidates = kernels::kNone;      // [target tokens][max_candidates]
  int alignment = kernels::kNone;       // per target token its source tokens' weights
  int encoder_output = kernels::kNone;  // [source tokens][d_model]: m, for tests
  int max_candidates = 0;               // kMaxBeam, or fewer with a smaller vocabulary
};

// The limits of a workspace of the program: of each axis, tokens and sequences; of choices, as many
// as the vocabulary has words, at least. Alignments cannot be asked for as long as the result's
// max_attention_values is 0.
kernels::ProgramLimits TranslatorLimits(const Translator& model, int max_source_tokens,
                                        int max_sources, int max_target_tokens, int max_targets);

// The programs of translators and of students (student.h) have in common: the axes and inputs,
// without positions and choices;
void AddTranslatorInputs(const TranslatorConfig& config, Translator* model);
// the states, those of self-attention if asked for;
void AddTranslatorStates(const TranslatorConfig& config, bool self_attention, Translator* model);
// an attention whose keys and values are still to be set;
kernels::ops::Attend TranslatorAttention(const TranslatorConfig& config, kernels::ValueId q);
// and the outputs of `predict`, which has its weights and choices.
void AddPrediction(const TranslatorConfig& config, kernels::ops::Predict predict,
                   Translator* model);
// The rows of their tables of words, and the values of a row that a workspace keeps: of the source
// and of the target each x, and queries, keys, values and what is attended to, or the inner values
// of the feed-forward layer.
int64_t TableWords(const TranslatorConfig& config);
int64_t TranslatorRow(const TranslatorConfig& config, int64_t inner_width);

// From the tensors that FORMAT.md lists. A tensor that the model does not use is an error. The
// views are those of `tensors`. A Translator.
BuiltProgram BuildTranslator(const ModelConfig& config, const SafetensorsFile& tensors);

kernels::ModelSizes TranslatorSizes(const ModelConfig& config);

}  // namespace sru::models

#endif  // SRU_MODELS_TRANSLATOR_H_
