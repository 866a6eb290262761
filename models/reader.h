// The document reader of the paper (section 4.2), DrQA with SRU, as a program. For a question of
// tokens q_j and a passage of tokens p_i, E being the embedding:
//
//   a_i = sum_j softmax_j(m(p_i) . m(q_j)) E[q_j],   m(x) = max(0, W E[x] + b): the aligned
//         question
//   x_i = [E[p_i] | features of i | a_i | embedding of its part of speech | of its named entity],
//         of these what the config has
//   d_i = the SRU layers over x_i, h_j = other SRU layers over E[q_j]: the vectors of the last
//         layer, or of all side by side
//   v   = sum_j softmax_j(w . h_j + b) h_j, or the mean of h_j: the question's vector
//   start logit of i = d_i . (W_s v + b_s),   end logit of i = d_i . (W_e v + b_e)
//
// What an answer is made of the logits is in decoding/spans.h, what the inputs are made of in
// reader_input.h. A question is computed once for all its passages.
#ifndef SRU_MODELS_READER_H_
#define SRU_MODELS_READER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/program.h"
#include "kernels/program_executable.h"
#include "models/config.h"
#include "models/task_parts.h"

namespace sru::models {

// An input that the model does not have is kNone. `values` has m of all ids, if that is a table.
struct Reader : ProgramParts {
  kernels::AxisId passage = kernels::kNone;    // tokens of passages
  kernels::AxisId question = kernels::kNone;   // tokens of questions
  kernels::AxisId questions = kernels::kNone;  // one row per question
  // Inputs of `passage`. Each sequence has at least one token.
  kernels::InputId passage_ids = kernels::kNone;
  kernels::InputId passage_features = kernels::kNone;  // [tokens][ReaderConfig::num_features()]
  kernels::InputId pos_ids = kernels::kNone;
  kernels::InputId ner_ids = kernels::kNone;
  kernels::InputId question_of =
      kernels::kNone;  // the sequence of `question` that a passage is read for
  // Input of `question`. Each sequence has at least one token.
  kernels::InputId question_ids = kernels::kNone;
  // Outputs: a value for each token of `passage`.
  int start_logits = kernels::kNone;
  int end_logits = kernels::kNone;
  // Values on the way: a_i (kNone without `use_qemb`), d_i, h_j and v.
  kernels::ValueId aligned = kernels::kNone;
  kernels::ValueId passage_vectors = kernels::kNone;
  kernels::ValueId question_vectors = kernels::kNone;
  kernels::ValueId question_vector = kernels::kNone;
};

// m depends on the id alone, so it is computed for the whole vocabulary when the program is built,
// unless the table would be larger than this: it takes as much memory as the embedding once more.
inline constexpr size_t kMaxMatchTableBytes = size_t{64} << 20;

// The limits of a workspace of the program, for `max_tokens` and `max_sequences` of passages and of
// questions each.
kernels::ProgramLimits ReaderLimits(const Reader& reader, int max_tokens, int max_sequences);

// From `embedding.weight`, `doc_rnn.rnns.*`, `question_rnn.rnns.*`, `start_attn.linear.*`,
// `end_attn.linear.*` and, where the config has them, `qemb_match.linear.*`,
// `pos_embedding.weight`, `ner_embedding.weight` and `self_attn.linear.*`. A tensor that the model
// does not use is an error. The views are those of `tensors`.
absl::StatusOr<Reader> BuildReader(const ModelConfig& config, const SafetensorsFile& tensors,
                                   size_t max_match_table_bytes = kMaxMatchTableBytes);

kernels::ModelSizes ReaderSizes(const ModelConfig& config);

}  // namespace sru::models

#endif  // SRU_MODELS_READER_H_
