// AnswerTask: a question and passages, all or some of those of a query, which a reader computes at
// once, and what runs batches of them.
#ifndef SRU_SERVER_TASKS_ANSWER_READER_BATCH_RUNNER_H_
#define SRU_SERVER_TASKS_ANSWER_READER_BATCH_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "models/model.h"
#include "server/batching/engine.h"
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

// Runs batches of AnswerTasks on a document reader, which must outlive the runner. It packs them
// into buffers that it allocated once, and owns the workspace of its worker. A batch mixes queries
// of any sizes; the question of a task is encoded once for all passages of the task. The limits
// bound the tokens of a batch, and the passages of one run of the program: a batch with more takes
// several runs.
absl::StatusOr<std::unique_ptr<batching::BatchRunner>> MakeReaderRunner(
    const models::Model& model, const batching::RunnerPlace& place);

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_ANSWER_READER_BATCH_RUNNER_H_
