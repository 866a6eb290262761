// Checks what a TranslateRequest says of the search and turns it into options of it. Pure functions,
// thread-safe.
#ifndef SRU_SERVER_RPC_TRANSLATE_PARSER_H_
#define SRU_SERVER_RPC_TRANSLATE_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "models/decoding/search_options.h"
#include "models/text/tokenizer.h"
#include "models/translator_config.h"
#include "server/rpc/request_limits.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rpc {

// How to search, with the model's own values for what the request leaves open. kInvalidArgument begins
// with the path of the field:
//   length_penalty.alpha: nan is out of range, expected 0 to 10
absl::StatusOr<models::SearchOptions> ParseSearch(const v1::TranslateRequest& request,
                                                  const models::TranslatorConfig& config,
                                                  const RequestLimits& limits);

// What each of `num_sequences` translations begins with, in tokens; all of them are shorter than
// `max_length`. `tokenizer` is the model's and may be null. kInvalidArgument as above.
absl::StatusOr<std::vector<std::vector<int32_t>>> ParsePrefixes(const v1::TranslateRequest& request,
                                                                size_t num_sequences,
                                                                const models::Tokenizer* tokenizer,
                                                                int max_length);

}  // namespace sru::server::rpc

#endif  // SRU_SERVER_RPC_TRANSLATE_PARSER_H_
