// AnswerTask: a question and passages, all or some of those of a query, which a reader computes at
// once.
#ifndef SRU_SERVER_TASKS_ANSWER_ANSWER_TASK_H_
#define SRU_SERVER_TASKS_ANSWER_ANSWER_TASK_H_

#include <cstdint>
#include <vector>

#include "server/batching/queue/batcher.h"

namespace sru::server::tasks {

// All pointers are the caller's and stay valid until the request's `done` is called. All tokens are
// counted, those of the question once.
struct AnswerTask : batching::SequenceTask {
  struct Passage {
    const int32_t* ids = nullptr;     // [length]
    const float* features = nullptr;  // [length][number of features]; null for a model without
    const int32_t* pos = nullptr;     // [length], parts of speech; null for a model without
    const int32_t* ner = nullptr;     // [length], named entities; null for a model without
    int length = 0;                   // at least 1
    // [length]: how probable it is that an answer starts, or ends, with each token. Each is the
    // result for this question and passage, whatever the other passages are.
    float* start_logits = nullptr;
    float* end_logits = nullptr;
  };

  const int32_t* question = nullptr;  // ids, [question_length]
  int question_length = 0;            // at least 1
  std::vector<Passage> passages;      // at least one
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_ANSWER_ANSWER_TASK_H_
