// The table of tasks: how models of each compute.
#ifndef SRU_SERVER_TASKS_RUNNERS_H_
#define SRU_SERVER_TASKS_RUNNERS_H_

#include "models/model.h"
#include "server/batching/engine.h"

namespace sru::server::tasks {

const batching::TaskRunners& RunnersOf(models::Task task);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_RUNNERS_H_
