// AnswerTask: a question and passages, all or some of those of a query, which a reader computes at once.
#ifndef SRU_SERVER_BATCHING_ANSWER_TASK_H_
#define SRU_SERVER_BATCHING_ANSWER_TASK_H_

#include <cstdint>
#include <vector>

namespace sru::server::batching {

// All pointers are the caller's and stay valid until the request's `done` is called. The sequence
// (SequenceTask) that has the task counts all of its tokens, those of the question once.
struct AnswerTask {
  struct Passage {
    const int32_t* ids = nullptr;     // [length]
    const float* features = nullptr;  // [length][number of features]; null for a model without
    const int32_t* pos = nullptr;     // [length], parts of speech; null for a model without
    const int32_t* ner = nullptr;     // [length], named entities; null for a model without
    int length = 0;                   // at least 1
    // [length]: how probable it is that an answer starts, or ends, with each token. Each is the result
    // for this question and passage, whatever the other passages are.
    float* start_logits = nullptr;
    float* end_logits = nullptr;
  };

  const int32_t* question = nullptr;  // ids, [question_length]
  int question_length = 0;            // at least 1
  std::vector<Passage> passages;      // at least one
};

}  // namespace sru::server::batching

#endif  // SRU_SERVER_BATCHING_ANSWER_TASK_H_
