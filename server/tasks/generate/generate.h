// Generate: texts that continue prompts.
#ifndef SRU_SERVER_TASKS_GENERATE_GENERATE_H_
#define SRU_SERVER_TASKS_GENERATE_GENERATE_H_

#include "server/calls/kinds/service_context.h"
#include "server/calls/method.h"

namespace sru::server::tasks {

// The row of the table of methods. `context` must outlive the calls.
calls::Method GenerateMethod(const calls::ServiceContext& context);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_GENERATE_GENERATE_H_
