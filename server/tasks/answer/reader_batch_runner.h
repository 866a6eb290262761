// ReaderBatchRunner: runs batches of queries on a document reader. It packs them into buffers that
// it allocated once, and owns the workspace of its worker. A batch mixes queries of any sizes; the
// question of a task is encoded once for all passages of the task.
#ifndef SRU_SERVER_TASKS_ANSWER_READER_BATCH_RUNNER_H_
#define SRU_SERVER_TASKS_ANSWER_READER_BATCH_RUNNER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "models/reader.h"
#include "server/batching/batch_runner.h"
#include "server/tasks/answer/answer_task.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"

namespace sru::server::tasks {

class ReaderBatchRunner : public batching::BatchRunner {
 public:
  // `executable` and `model` must outlive the runner. limits.max_tokens bounds the tokens of a
  // batch, limits.max_sequences the passages of one run of the program: a batch with more takes
  // several runs. limits.states is not read.
  static absl::StatusOr<std::unique_ptr<ReaderBatchRunner>> Create(
      const kernels::ProgramExecutable& executable, const models::Reader& model,
      const kernels::WorkspaceLimits& limits);

  int device() const override { return limits_.device; }
  absl::Status WarmUp() override;
  // The sequences are AnswerTasks.
  absl::Status Run(const std::vector<const batching::SequenceTask*>& sequences) override;

 private:
  ReaderBatchRunner(ProgramRun run, const models::Reader& model,
                    const kernels::WorkspaceLimits& limits);

  absl::Status Check(const AnswerTask& task) const;
  absl::Status AddPassage(const AnswerTask::Passage& passage);
  void Clear();
  // Computes what has been added and begins anew.
  absl::Status RunPacked();
  absl::Status RunWarmUpBatch(int num_tokens);

  ProgramRun run_;
  const models::Reader& model_;
  const kernels::WorkspaceLimits limits_;
  const int num_features_;  // per token of a passage; 0: the model has none
  // Of the questions and passages that have been added.
  std::vector<const AnswerTask::Passage*> passages_;
  PackedRows question_rows_;
  PackedRows passage_rows_;
  std::vector<int32_t> question_of_;   // [max_sequences], of each passage
  std::unique_ptr<float[]> features_;  // [max_tokens][num_features]
  std::vector<int32_t> pos_;           // [max_tokens], or empty for a model without
  std::vector<int32_t> ner_;
  std::vector<float> start_logits_;  // [max_tokens]
  std::vector<float> end_logits_;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_ANSWER_READER_BATCH_RUNNER_H_
