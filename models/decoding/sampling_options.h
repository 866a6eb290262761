// How the tokens of a text are picked, as a call asks for it (Sampling in inference.proto).
// token_picker.h turns it into what a backend needs for each token.
#ifndef SRU_MODELS_DECODING_SAMPLING_OPTIONS_H_
#define SRU_MODELS_DECODING_SAMPLING_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace sru::models {

inline constexpr float kMaxTemperature = 100;
// A repetition penalty is 0 (off) or in this range: a smaller one would take logits to infinity.
inline constexpr float kLeastRepetitionPenalty = 0.01f;
inline constexpr float kMaxRepetitionPenalty = 100;
inline constexpr float kMaxPenalty = 100;  // presence and frequency, of either sign
inline constexpr size_t kMaxLogitBiases = 1024;
inline constexpr float kMaxLogitBias = 1000;  // of either sign
// A token with this bias or less never comes.
inline constexpr float kBanningLogitBias = -100;

// A member that is 0 does nothing. Applied in this order: penalties, logit_bias, temperature,
// top_k, min_p, top_p.
struct SamplingOptions {
  float temperature = 0;  // the logits are divided by it; 0 = greedy
  int top_k = 0;          // only the most probable tokens, this many
  float top_p = 0;        // only as few of the most probable as have this probability together
  float min_p = 0;        // only tokens with at least this part of the largest probability
  float repetition_penalty = 0;  // 0 or 1 = off; for tokens of the prompt and of the text
  float presence_penalty = 0;    // for tokens of the text
  float frequency_penalty = 0;   // for tokens of the text, times how often they have come
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, what is added; in any order

  bool penalizes_repetition() const { return repetition_penalty != 0 && repetition_penalty != 1; }
  bool has_penalties() const {
    return penalizes_repetition() || presence_penalty != 0 || frequency_penalty != 0;
  }
};

// kInvalidArgument names the field of the request that is out of range, such as "sampling.top_p".
absl::Status ValidateSampling(const SamplingOptions& options, int vocabulary_size);

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_SAMPLING_OPTIONS_H_
