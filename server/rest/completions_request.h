// The body of POST /v1/completions: OpenAI's request, read into calls of Generate.
// docs/rest.md has the fields. Fields that are not listed there are refused by name, as OpenAI
// does: what an option was meant to change should not silently stay as it is. Those of vLLM have
// the names that vLLM has for them. null is the same as a field that is left out.
//
// Pure functions.
#ifndef SRU_SERVER_REST_COMPLETIONS_REQUEST_H_
#define SRU_SERVER_REST_COMPLETIONS_REQUEST_H_

#include <cstddef>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/calls/bounds/request_limits.h"
#include "server/rest/error_response.h"
#include "server/rest/memory_hold.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::rest {

struct CompletionsRequest {
  int max_prompts = calls::RequestLimits().max_sequences;  // for the reader

  v1::GenerateRequest generate;       // of each prompt, which it lacks
  std::vector<v1::Sequence> prompts;  // at least one
  bool has_list_of_prompts = false;   // `prompt` is a list of them, which may have one entry
  std::optional<int> logprobs;
  bool echo = false;
  bool score_only = false;  // max_tokens 0: the one token that `generate` asks for is not wanted
  bool stream = false;
  bool include_usage = false;
};

// An error with an OK status if all is well; otherwise it names the field, also as `param`.
RestError ParseCompletionsRequest(absl::string_view body, MemoryHold* memory,
                                  CompletionsRequest* request);

// Makes the error of the call of Generate for one prompt that of the request: the message and
// `param` name the field of this API instead of that of GenerateRequest. `index` is that of the
// prompt in the list, if it stands in one.
RestError ErrorOfPrompt(RestError error, std::optional<size_t> index);

}  // namespace sru::server::rest

#endif  // SRU_SERVER_REST_COMPLETIONS_REQUEST_H_
