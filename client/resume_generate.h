// ResumeGenerate: follows a Generate call to its end, although servers may end it before.
//
// A server that drains or has lost its devices ends Generate with UNAVAILABLE, after it has sent
// the state of each text (inference.proto). Here the texts go on from these states in further
// calls, without a token lost or repeated. This part knows no gRPC, so that tests can play any
// server.
#ifndef SRU_CLIENT_RESUME_GENERATE_H_
#define SRU_CLIENT_RESUME_GENERATE_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "sru/v1/inference.pb.h"

namespace sru::client {

// Takes a response, which it may change; false ends the call.
using TakeGenerated = absl::FunctionRef<bool(v1::GenerateResponse* response)>;
// Makes one call and returns its status: kCancelled if TakeGenerated ended it.
using CallGenerate =
    absl::FunctionRef<absl::Status(const v1::GenerateRequest& request, TakeGenerated take)>;

// Hands what the calls answer to `take`, as if one server had answered the whole request: `sample`,
// `prompt_tokens` and `generated_tokens` are those of the whole, and only the last message of a
// sample has a state. A request that samples without a seed gets a random one, so that a text that
// goes on elsewhere is the same text. With max_new_tokens 0 the server's limit counts from each
// interruption.
//
// Gives up after `max_attempts` calls in a row that brought no token. A call that goes on from a
// state and is refused as too much (RESOURCE_EXHAUSTED) counts as one, after the wait that the
// server asks for. Returns the status of the last call; kInternal if what the server sends makes no
// sense.
absl::Status ResumeGenerate(v1::GenerateRequest request, int max_attempts, CallGenerate call,
                            absl::FunctionRef<void(absl::Duration)> sleep, TakeGenerated take);

}  // namespace sru::client

#endif  // SRU_CLIENT_RESUME_GENERATE_H_
