// The table of tasks: how models of each compute.
#ifndef SRU_SERVER_BATCHING_TASK_RUNNERS_H_
#define SRU_SERVER_BATCHING_TASK_RUNNERS_H_

#include "models/model.h"
#include "server/batching/engine.h"

namespace sru::server::batching {

const TaskRunners& RunnersOf(models::Task task);

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_TASK_RUNNERS_H_
