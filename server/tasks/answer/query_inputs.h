// The inputs question and passage of a ModelInfer: question i with passage i is a query of its own.
#ifndef SRU_SERVER_TASKS_ANSWER_QUERY_INPUTS_H_
#define SRU_SERVER_TASKS_ANSWER_QUERY_INPUTS_H_

#include <memory>

#include "server/open_inference/tensors/task_tensors.h"

namespace sru::server::tasks {

std::unique_ptr<open_inference::TaskInputs> MakeQueryInputs();

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_ANSWER_QUERY_INPUTS_H_
