#include "server/tasks/translate/translate_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/status.h"

namespace sru::server::tasks {
namespace {

// The forms of length penalties, by their numbers in the message.
constexpr models::LengthPenalty kForms[] = {
    models::LengthPenalty::kGnmt, models::LengthPenalty::kPower, models::LengthPenalty::kNone};

}  // namespace

v1::LengthPenalty::Form FormOf(models::LengthPenalty penalty) {
  const auto* const found = std::find(std::begin(kForms), std::end(kForms), penalty);
  return static_cast<v1::LengthPenalty::Form>(found - kForms + v1::LengthPenalty::FORM_GNMT);
}

absl::StatusOr<models::SearchOptions> ParseSearch(const v1::TranslateRequest& request,
                                                  const models::TranslatorConfig& config,
                                                  const calls::RequestLimits& limits) {
  models::SearchOptions search = config.search;
  const auto set = [](auto value, auto* option) {
    if (value != 0) *option = value;
  };
  set(request.beam_size(), &search.beam_size);
  const v1::LengthPenalty& penalty = request.length_penalty();
  const int form = penalty.form();
  if (form < 0 || form > static_cast<int>(std::size(kForms))) {
    return InvalidArgument(
        "length_penalty.form: ", form,
        " is unknown, expected 1 (FORM_GNMT), 2 (FORM_POWER), 3 (FORM_NONE) or 0 for the "
        "model's own");
  }
  if (form > 0) search.length_penalty = kForms[form - v1::LengthPenalty::FORM_GNMT];
  if (penalty.has_alpha()) search.alpha = penalty.alpha();
  if (request.has_word_penalty()) search.word_penalty = request.word_penalty();
  set(request.max_length_factor(), &search.max_length_factor);
  const int most = std::min(limits.max_new_tokens, config.max_positions);
  search.max_length = std::min(search.max_length, most);
  set(request.max_new_tokens(), &search.max_length);
  search.num_hypotheses = request.num_hypotheses() == 0 ? 1 : request.num_hypotheses();
  if (search.beam_size == 1) {
    // Greedy search has one hypothesis, whatever is asked for.
    if (search.num_hypotheses > 1 && search.num_hypotheses <= kMaxBeam) search.num_hypotheses = 1;
    // OpenNMT-py's has no penalty; Marian's is its beam search.
    if (!search.narrows) search.length_penalty = models::LengthPenalty::kNone;
  }
  const bool by_flag = most == limits.max_new_tokens;
  SRU_RETURN_UNLESS_OK(models::ValidateSearch(
      search, most, by_flag ? "--max_new_tokens" : "max_positions of the model"));
  return search;
}

absl::StatusOr<std::vector<std::vector<int32_t>>> ParsePrefixes(const v1::TranslateRequest& request,
                                                                size_t num_sequences,
                                                                const models::Tokenizer* tokenizer,
                                                                int max_length,
                                                                models::UnknownUse unknown) {
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
    models::EncodeOptions options;
    options.max_tokens = max_length;
    options.unknown = unknown;
    absl::StatusOr<models::EncodedText> encoded = tokenizer->Encode(text, options);
    if (!encoded.ok()) {
      return InvalidArgument("target_prefixes[", i, "]: ", encoded.status().message());
    }
    if (encoded->ids.size() >= static_cast<size_t>(max_length)) {
      return InvalidArgument("target_prefixes[", i, "]: at least ", encoded->ids.size(),
                             " tokens are too many, expected fewer than ", max_length,
                             " (max_new_tokens)");
    }
    prefixes[i] = std::move(encoded->ids);
  }
  return prefixes;
}

}  // namespace sru::server::tasks
