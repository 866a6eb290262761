// Limits that inference.proto sets on a request: the server holds requests to them, and the client
// holds flags to them before it calls.
#ifndef SRU_BASE_LIMITS_H_
#define SRU_BASE_LIMITS_H_

namespace sru {

inline constexpr int kMaxSamples = 64;         // num_samples of Generate
inline constexpr int kMaxCandidates = 128;     // top_candidates of Score and Generate
inline constexpr int kMaxTopN = 100;           // top_n of Answer
inline constexpr int kMaxAnswerTokens = 1000;  // max_answer_tokens of Answer
inline constexpr int kMaxBeam = 64;            // beam_size of Translate

}  // namespace sru

#endif  // SRU_BASE_LIMITS_H_
