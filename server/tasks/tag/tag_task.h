// TagTask: a sequence of which a tagger finds the labels of each token.
#ifndef SRU_SERVER_TASKS_TAG_TAG_TASK_H_
#define SRU_SERVER_TASKS_TAG_TAG_TASK_H_

#include "kernels/program.h"
#include "server/calls/messages/token_task.h"

namespace sru::server::tasks {

struct TagTask : calls::TokenTask {
  // [num_tokens][num_labels]: the most probable labels of each token, the best first; a candidate's id is the label's index. The
  // caller's, valid until the request's `done` is called.
  kernels::Candidate* labels = nullptr;
  int num_labels = 1;  // 1 to models::Tagger::max_labels
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TAG_TAG_TASK_H_
