// TranslateStepper: runs steps of TranslateSequences on a translator. It packs what they need into
// buffers that it allocated once, and owns the workspace of its worker.
//
// A step is one run of the program, in which some sentences are encoded and hypotheses of others
// get a token, and a second one if alignments are asked for: only theirs are computed. A step that
// is larger than the workspace, by the hypotheses of its sentences, is run in parts. When the arena
// has no room for one, it is run in halves, and so on: only a sentence for which there is none even
// alone has to wait.
#ifndef SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_STEPPER_H_
#define SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_STEPPER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/program_executable.h"
#include "kernels/state_arena.h"
#include "models/translator.h"
#include "server/batching/steps/step_runner.h"
#include "server/tasks/programs/packed_rows.h"
#include "server/tasks/programs/program_run.h"
#include "server/tasks/translate/translate_sequence.h"

namespace sru::server::tasks {

class TranslateStepper : public batching::StepRunner {
 public:
  // `executable` and `model` must outlive the stepper. `arena` is of the device that `limits` names
  // and shared with the others of that device. limits.states is not read.
  static absl::StatusOr<std::unique_ptr<TranslateStepper>> Create(
      const kernels::ProgramExecutable& executable, const models::Translator& model,
      const kernels::WorkspaceLimits& limits, std::shared_ptr<kernels::StateArena> arena);

  int device() const override { return limits_.device; }
  absl::Status WarmUp() override;
  // The sequences are TranslateSequences.
  absl::Status Run(std::vector<batching::StepShare>& shares) override;

 private:
  TranslateStepper(ProgramRun run, const models::Translator& model,
                   const kernels::WorkspaceLimits& limits,
                   std::shared_ptr<kernels::StateArena> arena);

  // The end of those items that fit into one run together.
  size_t EndOfPart(const std::vector<TranslateItem>& items, size_t begin) const;
  // Packs those of items[begin, end) whose share has not failed.
  void Pack(const std::vector<TranslateItem>& items, size_t begin, size_t end,
            const std::vector<batching::StepShare>& shares);
  // Passes the results of the batch on.
  void Commit(std::vector<batching::StepShare>& shares);
  // Lists the words that the last sequence of `target_` may go on with; null: those of the one
  // before.
  void AddChoices(const std::vector<int32_t>* choices);
  absl::Status RunPacked();
  absl::Status RunWarmUpBatch(int num_tokens);

  ProgramRun run_;
  const models::Translator& model_;
  const kernels::WorkspaceLimits limits_;
  const std::shared_ptr<kernels::StateArena> arena_;

  // The step.
  std::vector<TranslateItem> planned_;
  std::vector<TranslateItem> items_;
  std::vector<TranslateItem> alignments_;

  // The batch.
  struct Packed {
    const TranslateItem* item = nullptr;
    int row = 0;         // the first, on its axis
    int64_t weight = 0;  // the first, of the alignment
  };
  std::vector<Packed> packed_;
  PackedRows source_;
  PredictedRows target_;
  PackedRows choices_;               // of sentences; without rows if the model has none
  std::vector<int32_t> positions_;   // [target row]
  std::vector<int32_t> choice_map_;  // [target sequence]
  bool any_log_probs_ = false;
  bool any_candidates_ = false;
  bool any_weights_ = false;
  std::unique_ptr<kernels::Candidate[]> candidates_;  // [target rows][max_candidates]
  // Made when it is asked for, for the first time: [max_attention_values].
  std::unique_ptr<float[]> weights_;
};

}  // namespace sru::server::tasks

#endif  // SRU_SERVER_TASKS_TRANSLATE_TRANSLATE_STEPPER_H_
