// The tasks: the calls that compute, each in a folder of its own with the parser of its request, the writer of its answer and its tensors
// in the Open Inference Protocol.
#ifndef SRU_SERVER_TASKS_TASKS_H_
#define SRU_SERVER_TASKS_TASKS_H_

#include <vector>

#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"

namespace sru::server::tasks {

// The rows of all of them. `context` must outlive the calls.
std::vector<calls::Method> TaskMethods(const calls::ServiceContext& context);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TASKS_H_
