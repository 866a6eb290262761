// StackTask: a sequence that a stack of layers computes, of a classifier or an encoder.
#ifndef SRU_SERVER_TASKS_STACKS_STACK_TASK_H_
#define SRU_SERVER_TASKS_STACKS_STACK_TASK_H_

#include "kernels/backend.h"
#include "server/calls/messages/token_task.h"

namespace sru::server::tasks {

struct StackTask : calls::TokenTask {
  // [layers][output_size]: the state that the sequence continues from; null = it begins here. For a
  // unidirectional model; the state after it goes to output.final_state.
  const float* initial_state = nullptr;
  kernels::SequenceOutput output;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_STACKS_STACK_TASK_H_
