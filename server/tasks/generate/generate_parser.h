// Checks a GenerateRequest and turns it into the task of its call. Pure functions, thread-safe.
#ifndef SRU_SERVER_TASKS_GENERATE_GENERATE_PARSER_H_
#define SRU_SERVER_TASKS_GENERATE_GENERATE_PARSER_H_

#include "absl/status/status.h"
#include "base/limits.h"
#include "server/calls/bounds/request_limits.h"
#include "server/calls/messages/request_parser.h"
#include "server/tasks/generate/generate_task.h"
#include "sru/v1/inference.pb.h"

namespace sru::server::tasks {

inline constexpr int kMaxStopTokens = 1024;

// Fills in everything that the request's fields say, except the state and the seed of a request
// without one, and counts the words of its prompt.
// `max_candidates` is the model's. kInvalidArgument begins with the path of the field:
//   sampling.top_p: 1.5 is out of range, expected 0 to 1
absl::Status ParseGenerate(const v1::GenerateRequest& request, const calls::ModelInput& input,
                           int max_candidates, const calls::RequestLimits& limits,
                           GenerateTask* task, calls::WordCounts* words);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_GENERATE_GENERATE_PARSER_H_
