#include "models/decoding/search_options.h"

#include <cmath>

#include "base/status.h"

namespace sru::models {

double LengthPenaltyOf(const SearchOptions& options, int num_tokens) {
  switch (options.length_penalty) {
    case LengthPenalty::kGnmt:
      // Wu et al. (2016) divide 5 + n by 6. OpenNMT-py counts BOS, too.
      return std::pow((5.0 + num_tokens + 1.0) / 6.0, options.alpha);
    case LengthPenalty::kPower:
      return std::pow(static_cast<double>(num_tokens), options.alpha);
    case LengthPenalty::kNone:
      return 1;
  }
  return 1;
}

double ScoreOf(const SearchOptions& options, double log_prob, int num_tokens) {
  return (log_prob - options.word_penalty * num_tokens) / LengthPenaltyOf(options, num_tokens);
}

int MaxLengthOf(const SearchOptions& options, int source_tokens) {
  if (options.max_length_factor == 0) return options.max_length;
  const float most =
      std::ceil(static_cast<float>(options.max_length_factor) * static_cast<float>(source_tokens));
  return most < static_cast<float>(options.max_length) ? static_cast<int>(most)
                                                       : options.max_length;
}

absl::Status ValidateSearch(const SearchOptions& options, int limit, const char* limit_name) {
  constexpr char kWrong[] = " is out of range, expected ";
  constexpr char kOwn[] = "or 0 for the model's own";
  if (options.beam_size < 1 || options.beam_size > kMaxBeam) {
    return InvalidArgument("beam_size: ", options.beam_size, kWrong, "1 to ", kMaxBeam, ", ", kOwn);
  }
  // NaN is in no range.
  if (!(options.alpha >= 0 && options.alpha <= kMaxLengthPenaltyAlpha)) {
    return InvalidArgument("length_penalty.alpha: ", options.alpha, kWrong, "0 to ",
                           kMaxLengthPenaltyAlpha);
  }
  if (!(std::abs(options.word_penalty) <= kMaxWordPenalty)) {
    return InvalidArgument("word_penalty: ", options.word_penalty, kWrong, -kMaxWordPenalty, " to ",
                           kMaxWordPenalty);
  }
  if (!(options.max_length_factor >= 0 && options.max_length_factor <= kMaxLengthFactor)) {
    return InvalidArgument("max_length_factor: ", options.max_length_factor, kWrong, "0 to ",
                           kMaxLengthFactor, ", 0 for the model's own");
  }
  if (options.max_length < 1 || options.max_length > limit) {
    return InvalidArgument("max_new_tokens: ", options.max_length, kWrong, "1 to ", limit, " (",
                           limit_name, "), ", kOwn);
  }
  if (options.num_hypotheses < 1 || options.num_hypotheses > options.beam_size) {
    // Greedy search takes any number for 1.
    const bool greedy = options.beam_size == 1;
    return InvalidArgument("num_hypotheses: ", options.num_hypotheses, kWrong, "1 to ",
                           greedy ? kMaxBeam : options.beam_size, greedy ? "" : " (beam_size)",
                           ", or 0 for 1");
  }
  return absl::OkStatus();
}

}  // namespace sru::models
