// What calls that compute have in common, whatever their shape: their deadline, the models that
// answer them, and the errors that any of them may end with. Pure functions, thread-safe.
#ifndef SRU_SERVER_CALLS_KINDS_CALL_BASICS_H_
#define SRU_SERVER_CALLS_KINDS_CALL_BASICS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "models/model.h"
#include "server/calls/byte_budget.h"
#include "server/calls/method_info.h"
#include "server/lifecycle/model_registry.h"

namespace sru::server::calls {

// Whether a call that is cancelled `now` is so because of its deadline. A caller whose deadline
// passes cancels the call, and may do so a little before the server sees the deadline pass: the
// wire carries a timeout that gRPC rounds up by at most 1%.
bool IsAboutDeadline(absl::Time deadline, absl::Time arrival, absl::Time now);
absl::Status DeadlinePassed();

// The error of a call that the model does not answer: what the method needs, and what the model
// answers.
absl::Status WrongTask(const models::Model& model, MethodId method);
// Whether the model answers calls of the method.
bool Answers(const models::Model& model, MethodId method);
// WrongTask() unless models with the model's task answer the method.
absl::Status CheckTask(const models::Model& model, MethodId method);

inline constexpr size_t kLargeMessageBytes = 4096;
// To write an answer of this estimate takes a millisecond, as JSON, in which others' batches should
// not wait.
inline constexpr int64_t kLongAnswerBytes = 128 << 10;

// Returns whether a message of a model, which may be null, takes longer to read than a loop should
// be held up.
bool IsLongText(const lifecycle::ServedModel* served, int64_t message_bytes);

// The message of a refusal because the budget has no room for `wanted` bytes.
std::string NoMemoryLeft(const ByteBudget& budget, int64_t wanted);

// Makes the same text for an answer that never fits; `field` names what is asked about.
std::string AnswerTooLarge(const ByteBudget& budget, int64_t answer_bytes, absl::string_view field);

// The message of a refusal because memory for the request could not be allocated (std::bad_alloc).
inline constexpr char kNoMemory[] =
    "memory: the server could not get enough for the call; retry later";

}  // namespace sru::server::calls

#endif  // SRU_SERVER_CALLS_KINDS_CALL_BASICS_H_
