#include "server/tasks/translate/translate_parser.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/status.h"

namespace sru::server::tasks {
namespace {

absl::Status ParseLengthPenalty(const v1::LengthPenalty& penalty, models::SearchOptions* search) {
  switch (penalty.form()) {
    case v1::LengthPenalty::FORM_UNSPECIFIED:
      break;
    case v1::LengthPenalty::FORM_GNMT:
      search->length_penalty = models::LengthPenalty::kGnmt;
      break;
    case v1::LengthPenalty::FORM_POWER:
      search->length_penalty = models::LengthPenalty::kPower;
      break;
    case v1::LengthPenalty::FORM_NONE:
      search->length_penalty = models::LengthPenalty::kNone;
      break;
    default:
      return InvalidArgument(
          "length_penalty.form: ", static_cast<int>(penalty.form()),
          " is unknown, expected 1 (FORM_GNMT), 2 (FORM_POWER), 3 (FORM_NONE) or 0 for the "
          "model's own");
  }
  if (!penalty.has_alpha()) return absl::OkStatus();
  // Not a number fails, too.
  if (!(penalty.alpha() >= 0 && penalty.alpha() <= models::kMaxLengthPenaltyAlpha)) {
    return InvalidArgument("length_penalty.alpha: ", penalty.alpha(),
                           " is out of range, expected 0 to ", models::kMaxLengthPenaltyAlpha);
  }
  search->alpha = penalty.alpha();
  return absl::OkStatus();
}

absl::Status ParseWordPenalty(const v1::TranslateRequest& request, models::SearchOptions* search) {
  if (!request.has_word_penalty()) return absl::OkStatus();
  if (!(std::abs(request.word_penalty()) <= models::kMaxWordPenalty)) {
    return InvalidArgument("word_penalty: ", request.word_penalty(), " is out of range, expected ",
                           -models::kMaxWordPenalty, " to ", models::kMaxWordPenalty);
  }
  search->word_penalty = request.word_penalty();
  return absl::OkStatus();
}

absl::Status ParseMaxLengthFactor(float factor, models::SearchOptions* search) {
  if (!(factor >= 0 && factor <= models::kMaxLengthFactor)) {
    return InvalidArgument("max_length_factor: ", factor, " is out of range, expected 0 to ",
                           models::kMaxLengthFactor, ", 0 for the model's own");
  }
  if (factor > 0) search->max_length_factor = factor;
  return absl::OkStatus();
}

absl::Status ParseMaxLength(int32_t max_new_tokens, int max_positions,
                            const calls::RequestLimits& limits, models::SearchOptions* search) {
  const int most = std::min(limits.max_new_tokens, max_positions);
  if (max_new_tokens < 0 || max_new_tokens > most) {
    return InvalidArgument(
        "max_new_tokens: ", max_new_tokens, " is out of range, expected 1 to ", most, " (",
        most == limits.max_new_tokens ? "--max_new_tokens" : "max_positions of the model",
        "), or 0 for the model's own");
  }
  search->max_length = max_new_tokens == 0 ? std::min(search->max_length, most) : max_new_tokens;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<models::SearchOptions> ParseSearch(const v1::TranslateRequest& request,
                                                  const models::TranslatorConfig& config,
                                                  const calls::RequestLimits& limits) {
  models::SearchOptions search = config.search;
  if (request.beam_size() < 0 || request.beam_size() > kMaxBeam) {
    return InvalidArgument("beam_size: ", request.beam_size(), " is out of range, expected 1 to ",
                           kMaxBeam, ", or 0 for the model's own");
  }
  if (request.beam_size() > 0) search.beam_size = request.beam_size();
  SRU_RETURN_UNLESS_OK(ParseLengthPenalty(request.length_penalty(), &search));
  SRU_RETURN_UNLESS_OK(ParseWordPenalty(request, &search));
  SRU_RETURN_UNLESS_OK(ParseMaxLengthFactor(request.max_length_factor(), &search));
  SRU_RETURN_UNLESS_OK(
      ParseMaxLength(request.max_new_tokens(), config.max_positions, limits, &search));
  // Greedy search has one hypothesis, whatever is asked for.
  const bool greedy = search.beam_size == 1;
  const int most = greedy ? kMaxBeam : search.beam_size;
  if (request.num_hypotheses() < 0 || request.num_hypotheses() > most) {
    return InvalidArgument("num_hypotheses: ", request.num_hypotheses(),
                           " is out of range, expected 1 to ", most, greedy ? "" : " (beam_size)",
                           ", or 0 for 1");
  }
  search.num_hypotheses = greedy ? 1 : std::max(1, request.num_hypotheses());
  // OpenNMT-py's greedy search has no penalty; Marian's is its beam search.
  if (greedy && !search.narrows) search.length_penalty = models::LengthPenalty::kNone;
  return search;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> ParsePrefixes(const v1::TranslateRequest& request,
                                                                size_t num_sequences,
                                                                const models::Tokenizer* tokenizer,
                                                                int max_length) {
  std::vector<std::vector<int32_t>> prefixes(num_sequences);
  const auto found = static_cast<size_t>(request.target_prefixes_size());
  if (found == 0) return prefixes;
  if (found != num_sequences) {
    return InvalidArgument("target_prefixes: expected none or ", num_sequences,
                           ", one per sequence, found ", found);
  }
  for (size_t i = 0; i < num_sequences; ++i) {
    const std::string& text = request.target_prefixes(static_cast<int>(i));
    if (text.empty()) continue;
    if (tokenizer == nullptr) {
      return InvalidArgument("target_prefixes[", i,
                             "]: the model has no subwords, expected no prefix");
    }
    absl::StatusOr<std::vector<int32_t>> ids = tokenizer->Encode(text, max_length);
    if (!ids.ok()) return InvalidArgument("target_prefixes[", i, "]: ", ids.status().message());
    if (ids->size() >= static_cast<size_t>(max_length)) {
      return InvalidArgument("target_prefixes[", i, "]: at least ", ids->size(),
                             " tokens are too many, expected fewer than ", max_length,
                             " (max_new_tokens)");
    }
    prefixes[i] = *std::move(ids);
  }
  return prefixes;
}

}  // namespace sru::server::tasks
