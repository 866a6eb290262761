// Checks what a TranslateRequest says of the search and turns it into options of it. Pure
// functions, thread-safe.
#ifndef SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_PARSER_H_
#define SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/decoding/search_options.h"
#include "models/text/tokenizer.h"
#include "models/translator_config.h"
#include "server/calls/bounds/request_limits.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::tasks {

v1::LengthPenalty::Form FormOf(models::LengthPenalty penalty);

// How to search, with the model's own values for what the request leaves open. kInvalidArgument
// begins with the path of the field:
//   length_penalty.alpha: nan is out of range, expected 0 to 10
absl::StatusOr<models::SearchOptions> ParseSearch(const v1::TranslateRequest& request,
                                                  const models::TranslatorConfig& config,
                                                  const calls::RequestLimits& limits);

// What each of `num_sequences` translations begins with, in tokens; all of them are shorter than
// `max_length`. `tokenizer` is the model's and may be null. kInvalidArgument as above.
absl::StatusOr<std::vector<std::vector<int32_t>>> ParsePrefixes(
    const v1::TranslateRequest& request, size_t num_sequences, const models::Tokenizer* tokenizer,
    int max_length, models::UnknownUse unknown = models::UnknownUse::kDefault);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_PARSER_H_
