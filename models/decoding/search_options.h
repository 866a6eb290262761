// How a translation is searched for, as a call asks for it (TranslateRequest in inference.proto)
// and as config.json has it by default. beam_search.h carries it out.
#ifndef SRU_MODELS_DECODING_SEARCH_OPTIONS_H_
#define SRU_MODELS_DECODING_SEARCH_OPTIONS_H_

#include "absl/status/status.h"
#include "base/limits.h"

namespace sru::models {

inline constexpr double kMaxLengthPenaltyAlpha = 10;
inline constexpr double kMaxWordPenalty = 100;  // of either sign
inline constexpr double kMaxLengthFactor = 100;

// What the log-probability of a hypothesis of n tokens, its end counted, is divided by.
enum class LengthPenalty {
  kGnmt,   // ((6 + n) / 6)^alpha
  kPower,  // n^alpha
  kNone,   // 1
};

constexpr const char* LengthPenaltyName(LengthPenalty penalty) {
  switch (penalty) {
    case LengthPenalty::kGnmt:
      return "gnmt";
    case LengthPenalty::kPower:
      return "power";
    case LengthPenalty::kNone:
      return "none";
  }
  return "";
}

// Greedy search is that with beam_size 1 and LengthPenalty::kNone.
struct SearchOptions {
  int beam_size = 1;       // hypotheses that are kept at each step
  int num_hypotheses = 1;  // of the answer; at most beam_size
  LengthPenalty length_penalty = LengthPenalty::kNone;
  double alpha = 0;
  int max_length = 1;       // most tokens of a hypothesis, those of its prefix and its end counted
  bool narrows = false;     // Marian's rules instead of OpenNMT-py's (beam_search.h)
  double word_penalty = 0;  // taken from the log-probability for each token, the end counted
  // Also bounds the tokens of a hypothesis, by this many for each token of the source; 0: it does
  // not.
  double max_length_factor = 0;
};

double LengthPenaltyOf(const SearchOptions& options, int num_tokens);

// The score, by which hypotheses are ordered: (log_prob - word_penalty n) / length penalty, n =
// num_tokens.
double ScoreOf(const SearchOptions& options, double log_prob, int num_tokens);

// The most tokens of a hypothesis of a source of `source_tokens`: max_length, or the least whole
// number that is not below max_length_factor source_tokens (in float, as Marian has it) if that is
// less.
int MaxLengthOf(const SearchOptions& options, int source_tokens);

// kInvalidArgument names the field of the request that is out of range, such as
// "length_penalty.alpha". `limit` is the largest max_length, `limit_name` whence it comes.
absl::Status ValidateSearch(const SearchOptions& options, int limit, const char* limit_name);

}  // namespace sru::models

#endif  // SRU_MODELS_DECODING_SEARCH_OPTIONS_H_
