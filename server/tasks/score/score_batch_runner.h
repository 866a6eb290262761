// ScoreBatchRunner: runs batches of sequences on a language model. It packs them into buffers that
// it allocated once, and owns the workspace of its worker.
#ifndef SRU_SERVER_TASKS_SCORE_SCORE_BATCH_RUNNER_H_
#define SRU_SERVER_TASKS_SCORE_SCORE_BATCH_RUNNER_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/backend.h"
#include "models/language_model.h"
#include "server/batching/batch_runner.h"
#include "server/batching/prefix_cache.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"
#include "server/tasks/score/score_task.h"

namespace sru::server::tasks {

class ScoreBatchRunner : public batching::BatchRunner {
 public:
  // `executable` and `model` must outlive the runner. `arena` is of the device that `limits` names
  // and may be shared with others. limits.states is not read. `prefixes` is the cache of the same
  // arena, which makes room for the states of a batch; null: there is none.
  static absl::StatusOr<std::unique_ptr<ScoreBatchRunner>> Create(
      const kernels::ProgramExecutable& executable, const models::LanguageModel& model,
      const kernels::WorkspaceLimits& limits, std::shared_ptr<kernels::StateArena> arena,
      std::shared_ptr<batching::PrefixCache> prefixes = nullptr);

  int device() const override { return limits_.device; }
  absl::Status WarmUp() override;
  // The sequences are ScoreTasks. kResourceExhausted when the arena does not hold the states of the
  // batch.
  absl::Status Run(const std::vector<const batching::SequenceTask*>& sequences) override;

 private:
  ScoreBatchRunner(ProgramRun run, const models::LanguageModel& model,
                   const kernels::WorkspaceLimits& limits,
                   std::shared_ptr<kernels::StateArena> arena,
                   std::shared_ptr<batching::PrefixCache> prefixes);

  absl::Status TryRun(const std::vector<const batching::SequenceTask*>& sequences);
  absl::Status Pack(const std::vector<const batching::SequenceTask*>& sequences);
  absl::Status MakeSlots(const std::vector<const batching::SequenceTask*>& sequences);
  absl::Status RunPacked(bool any_candidates);
  absl::Status ReadResults(const std::vector<const batching::SequenceTask*>& sequences);
  absl::Status RunWarmUpBatch(int num_tokens);

  ProgramRun run_;
  const models::LanguageModel& model_;
  const kernels::WorkspaceLimits limits_;
  const std::shared_ptr<kernels::StateArena> arena_;
  const std::shared_ptr<batching::PrefixCache> prefixes_;  // may be null
  PredictedRows tokens_;  // with slots for the sequences that need one
  // [max_tokens][max_candidates]; made when a sequence asks for candidates for the first time.
  std::unique_ptr<kernels::Candidate[]> candidates_;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_SCORE_SCORE_BATCH_RUNNER_H_
